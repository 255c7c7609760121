package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// watched is one running watcher and what it has reported.
type watched struct {
	t    *testing.T
	path string

	mu      sync.Mutex
	configs []*Config
	errs    []error
}

// watch starts watching. Reading without events is put off so far that only
// events can be the reason of a report.
func watch(t *testing.T, path string, settle time.Duration) *watched {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, path: path}
	log := slog.New(slog.DiscardHandler)
	in := newWatcher(path, c.sources, log,
		func(c *Config) { w.mu.Lock(); w.configs = append(w.configs, c); w.mu.Unlock() },
		func(err error) { w.mu.Lock(); w.errs = append(w.errs, err); w.mu.Unlock() })
	in.settle, in.backstop = settle, time.Hour
	ready := make(chan struct{})
	in.ready = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { in.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	<-ready
	return w
}

func (w *watched) counts() (configs, errs int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.configs), len(w.errs)
}

// sees waits until a configuration of that name has been reported.
func (w *watched) sees(name string) {
	w.t.Helper()
	w.wait("the configuration "+name, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.configs) > 0 && w.configs[len(w.configs)-1].Name == name
	})
}

func (w *watched) wait(what string, cond func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("never seen: %s; errors %v", what, w.errs)
		}
	}
}

func named(name string) string { return "auth: {mode: none}\nname: " + name + "\n" }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const quick = 20 * time.Millisecond

// TestWatchWaysToReplace covers B170 and B172: every way in which editors and
// tools replace a file is seen, again and again.
func TestWatchWaysToReplace(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path, text string){
		"written in place": write,
		"renamed over": func(t *testing.T, path, text string) {
			write(t, path+".tmp", text)
			do(t, os.Rename(path+".tmp", path))
		},
		"moved away and written anew": func(t *testing.T, path, text string) { // vim
			do(t, os.Rename(path, path+"~"))
			write(t, path, text)
			do(t, os.Remove(path+"~"))
		},
		"removed and written anew": func(t *testing.T, path, text string) {
			do(t, os.Remove(path))
			write(t, path, text)
		},
		"truncated and written in parts": func(t *testing.T, path, text string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			do(t, err)
			for _, part := range strings.SplitAfter(text, "\n") {
				_, err := f.WriteString(part)
				do(t, err)
				do(t, f.Sync())
			}
			do(t, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "portal.yaml")
			write(t, path, named("start"))
			w := watch(t, path, quick)
			for i := range 4 {
				next := fmt.Sprintf("version-%d", i)
				replace(t, path, named(next))
				w.sees(next)
			}
		})
	}
}

// TestWatchKubernetes swaps the ..data link as the kubelet does.
func TestWatchKubernetes(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		real := fmt.Sprintf("..2026_%d", n)
		do(t, os.Mkdir(filepath.Join(dir, real), 0o700))
		write(t, filepath.Join(dir, real, "portal.yaml"), named(fmt.Sprintf("version-%d", n)))
		do(t, os.Symlink(real, filepath.Join(dir, "..data_tmp")))
		do(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		if n > 0 {
			do(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", n-1))))
		}
	}
	version(0)
	path := filepath.Join(dir, "portal.yaml")
	do(t, os.Symlink(filepath.Join("..data", "portal.yaml"), path))
	w := watch(t, path, quick)
	for n := 1; n < 5; n++ {
		version(n)
		w.sees(fmt.Sprintf("version-%d", n))
	}
}

// TestWatchLinkTarget edits the file that a link in another directory names.
func TestWatchLinkTarget(t *testing.T) {
	real, path := filepath.Join(t.TempDir(), "real.yaml"), filepath.Join(t.TempDir(), "portal.yaml")
	write(t, real, named("start"))
	do(t, os.Symlink(real, path))
	w := watch(t, path, quick)
	for i := range 3 {
		next := fmt.Sprintf("version-%d", i)
		write(t, real+".tmp", named(next))
		do(t, os.Rename(real+".tmp", real))
		w.sees(next)
	}
}

func TestWatchKeepsTheOldOnErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.yaml")
	write(t, path, named("start"))
	w := watch(t, path, quick)

	write(t, path, "authh: {mode: none}\nname: [a]\n")
	w.wait("the errors", func() bool { _, n := w.counts(); return n == 1 })
	if text := w.errs[0].Error(); !strings.Contains(text, `did you mean "auth"?`) || !strings.Contains(text, "name: must be text") {
		t.Errorf("not all errors: %s", text)
	}
	do(t, os.Remove(path))
	w.wait("the missing file", func() bool { _, n := w.counts(); return n == 2 })
	if n, _ := w.counts(); n != 0 {
		t.Errorf("%d configurations were reported from bad files", n)
	}
	write(t, path, named("good"))
	w.sees("good")
}

// TestWatchSameContentIsNoChange touches and rewrites a file without changing
// it, and then really changes it: exactly one change is seen.
func TestWatchSameContentIsNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.yaml")
	write(t, path, named("start"))
	w := watch(t, path, settle)
	do(t, os.Chtimes(path, time.Now(), time.Now()))
	write(t, path, named("start"))
	write(t, path+".tmp", named("start"))
	do(t, os.Rename(path+".tmp", path))
	write(t, filepath.Join(filepath.Dir(path), "other"), "x")
	write(t, path, named("changed"))
	w.sees("changed")
	if n, e := w.counts(); n != 1 || e != 0 {
		t.Errorf("%d changes and %d errors; want one change", n, e)
	}
}

func TestWatchSecretFile(t *testing.T) {
	path, secret := filepath.Join(t.TempDir(), "portal.yaml"), filepath.Join(t.TempDir(), "token")
	write(t, secret, "one")
	write(t, path, named("x")+"servers: {a: {url: 'https://a.example.com', bearer: 'file:"+secret+"'}}\n")
	w := watch(t, path, quick)
	write(t, secret, "two")
	w.wait("the new secret", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.configs) > 0 && w.configs[len(w.configs)-1].Servers["a"].Bearer.Reveal() == "two"
	})
}

// TestWatchWithoutEvents is a file system that sends none.
func TestWatchWithoutEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.yaml")
	write(t, path, named("start"))
	c, err := Load(path)
	do(t, err)
	got := make(chan *Config, 10)
	in := newWatcher(path, c.sources, slog.New(slog.DiscardHandler), func(c *Config) { got <- c }, func(err error) { t.Error(err) })
	in.settle, in.backstop = time.Millisecond, 10*time.Millisecond
	write(t, path+".tmp", named("polled"))
	do(t, os.Rename(path+".tmp", path))
	for !in.changed() {
		t.Fatal("the change is not seen by reading")
	}
	for !in.reload() {
		time.Sleep(time.Millisecond)
	}
	if c := <-got; c.Name != "polled" {
		t.Errorf("got %s", c.Name)
	}
}

// TestWatchFromMissesNothing changes the file between loading and watching.
func TestWatchFromMissesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "portal.yaml")
	write(t, path, named("start"))
	c, err := Load(path)
	do(t, err)
	write(t, path, named("between"))
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, 10)
	done := make(chan struct{})
	go func() {
		WatchFrom(ctx, c, slog.New(slog.DiscardHandler), func(c *Config) { got <- c.Name }, func(err error) { got <- err.Error() })
		close(done)
	}()
	select {
	case name := <-got:
		if name != "between" {
			t.Errorf("got %s", name)
		}
	case <-time.After(30 * time.Second):
		t.Error("the change was missed")
	}
	cancel()
	<-done
	// And the plain form starts from what is there.
	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		Watch(ctx, path, slog.New(slog.DiscardHandler), func(c *Config) { got <- c.Name }, func(err error) { got <- err.Error() })
		close(done)
	}()
	for i := 0; ; i++ {
		write(t, path, named(fmt.Sprintf("after-%d", i)))
		select {
		case name := <-got:
			if !strings.HasPrefix(name, "after-") {
				t.Errorf("got %s", name)
			}
			cancel()
			<-done
			return
		case <-time.After(time.Second):
		}
		if i > 30 {
			t.Fatal("Watch sees nothing")
		}
	}
}
