package store_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// logBuffer is a log that a test can read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog() (*slog.Logger, *logBuffer) {
	b := &logBuffer{}
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})), b
}

func openFile(t *testing.T) store.Store {
	log, _ := newLog()
	s, err := store.OpenFile(filepath.Join(t.TempDir(), "portal.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFile(t *testing.T) { storetest.Run(t, openFile) }

func TestRedis(t *testing.T) {
	server := storetest.StartRedis(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		log, _ := newLog()
		s, err := store.OpenRedis(context.Background(), config.Secret(server.URL()), "test-"+filepath.Base(t.TempDir())+t.Name()[len("TestRedis/"):]+":", log)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
