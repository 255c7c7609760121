package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

func openFile(t *testing.T) store.Store {
	log, _ := testlog.New()
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
		log, _ := testlog.New()
		s, err := store.OpenRedis(context.Background(), config.Secret(server.URL()), "test-"+filepath.Base(t.TempDir())+t.Name()[len("TestRedis/"):]+":", log)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
