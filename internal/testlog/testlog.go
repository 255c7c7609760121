// Package testlog keeps what a program or a part of it wrote, for tests that
// look into it while it is still being written.
package testlog

import (
	"bytes"
	"log/slog"
	"sync"
)

// Buffer keeps what is written to it. Its zero value is ready to use, also by
// several goroutines at once.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p; it never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// New returns a logger of lines of text, of every level, and what it wrote.
func New() (*slog.Logger, *Buffer) {
	b := &Buffer{}
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})), b
}
