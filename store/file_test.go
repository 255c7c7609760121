package store_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

func TestFileSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.db")
	log, _ := testlog.New()
	ctx := t.Context()
	for i := range 3 {
		s, err := store.OpenFile(path, log)
		if err != nil {
			t.Fatal(err)
		}
		v, found, err := s.Get(ctx, "k")
		if want := fmt.Sprint(i); err != nil || found != (i > 0) || found && string(v) != want {
			t.Fatalf("opening %d: %q, %v, %v", i, v, found, err)
		}
		if err := s.Set(ctx, "k", fmt.Appendf(nil, "%d", i+1), time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestFileHeldByAnotherProcess runs this test program again as the process
// that holds the file.
func TestFileHeldByAnotherProcess(t *testing.T) {
	if path := os.Getenv("STORE_TEST_HOLD"); path != "" {
		log, _ := testlog.New()
		s, err := store.OpenFile(path, log)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the other test is done
		return
	}
	path := filepath.Join(t.TempDir(), "portal.db")
	other := exec.Command(os.Args[0], "-test.run=^TestFileHeldByAnotherProcess$")
	other.Env = append(os.Environ(), "STORE_TEST_HOLD="+path)
	in, _ := other.StdinPipe()
	out, _ := other.StdoutPipe()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = other.Wait() }()
	said := make([]byte, 5)
	if _, err := out.Read(said); err != nil || !bytes.HasPrefix(said, []byte("held")) {
		t.Fatalf("the other process said %q, %v", said, err)
	}
	log, _ := testlog.New()
	_, err := store.Open(context.Background(), config.Store{File: path}, "portal.yaml", log)
	if err == nil {
		t.Fatal("the file was opened twice")
	}
	for _, want := range []string{path, "another process holds it", "store.redis"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

func TestFileThatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	log, _ := testlog.New()
	s, err := store.OpenFile(good, log)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := s.Set(t.Context(), fmt.Sprintf("k%d", i), bytes.Repeat([]byte("x"), 3000), 0); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	garbled := bytes.Clone(data)
	for i := range garbled[:8192] {
		garbled[i] ^= 0xa5
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"text", []byte(strings.Repeat("this is not a database\n", 1000)), "damaged"},
		{"short", []byte("x"), "damaged"},
		{"zeros", make([]byte, 65536), "damaged"},
		{"garbled head", garbled, "damaged"},
		{"cut", data[:9000], "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "portal.db")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := store.OpenFile(path, log)
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want the path and %q", err, c.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(after, c.data) {
				t.Error("the file was changed")
			}
		})
	}
	for name, path := range map[string]string{"directory": dir, "no directory": filepath.Join(dir, "none", "portal.db")} {
		if _, err := store.OpenFile(path, log); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "store.file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFileSweeps checks that what has expired leaves the disk, not only the
// answers.
func TestFileSweeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.db")
	log, _ := testlog.New()
	open := func() *store.File {
		s, err := store.OpenFile(path, log)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for i := range 20 {
		if err := s.Set(t.Context(), fmt.Sprintf("secret-%d", i), []byte("v"), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set(t.Context(), "kept", []byte("v"), time.Hour); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "all have expired", func() bool { k, err := s.Keys(t.Context(), "secret-"); return err == nil && len(k) == 0 })
	s.Close()
	s = open() // sweeps at once
	defer s.Close()
	storetest.Eventually(t, "the expired keys are swept", func() bool { n, err := s.Expiring(); return err == nil && n == 1 })
	if _, found, err := s.Get(t.Context(), "kept"); err != nil || !found {
		t.Errorf("a living key was swept: %v, %v", found, err)
	}
}

func TestOpenPlacesTheFile(t *testing.T) {
	dir := t.TempDir()
	log, _ := testlog.New()
	for file, want := range map[string]string{"": "portal.db", "state.db": "state.db", filepath.Join(dir, "abs.db"): "abs.db"} {
		s, err := store.Open(t.Context(), config.Store{File: file}, filepath.Join(dir, "portal.yaml"), log)
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Status(); st.Backend != "file" || st.Degraded {
			t.Errorf("status %+v", st)
		}
		s.Close()
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Error(err)
		}
	}
}
