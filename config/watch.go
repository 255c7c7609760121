package config

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle   = 200 * time.Millisecond // quiet time after the last event before the file is read
	backstop = 5 * time.Second        // reading without any event, for file systems that send none
	patience = 5                      // settling times that a file may stay bad before it is reported
)

// Watch reports changes of the configuration file until ctx ends; it blocks.
// It compares with the content at its start; WatchFrom, which compares with a
// loaded configuration, misses nothing in between.
func Watch(ctx context.Context, path string, log *slog.Logger, onChange func(*Config), onError func(error)) {
	sources := map[string]Secret{}
	if data, err := readFile(path); err == nil {
		_, sources, _ = parse(path, data, os.LookupEnv)
	}
	newWatcher(path, sources, log, onChange, onError).run(ctx)
}

// WatchFrom reports changes against a configuration that Load returned, until
// ctx ends; it blocks. onChange gets each new valid configuration, onError all
// errors of a new bad one, after which the old one is to stay in use. Content
// that is the same as before is no change, and a file that stays bad is
// reported once. Files named by file:/path secrets are watched too. Both
// functions are called from one goroutine, one after the other.
func WatchFrom(ctx context.Context, current *Config, log *slog.Logger, onChange func(*Config), onError func(error)) {
	newWatcher(current.Path, maps.Clone(current.sources), log, onChange, onError).run(ctx)
}

type watcher struct {
	path     string
	log      *slog.Logger
	onChange func(*Config)
	onError  func(error)
	settle   time.Duration
	backstop time.Duration
	sources  map[string]Secret    // last seen, good or bad
	broken   string               // last error about reading the file itself
	watched  map[string]bool      // paths given to fsnotify
	commands map[string]time.Time // when commands that print secrets ran last
	rerun    time.Duration        // between two runs of one
	ready    func()               // told when watching has begun
}

func newWatcher(path string, sources map[string]Secret, log *slog.Logger, onChange func(*Config), onError func(error)) *watcher {
	return &watcher{
		path: path, log: log, onChange: onChange, onError: onError,
		settle: settle, backstop: backstop, sources: sources,
		watched: map[string]bool{}, ready: func() {},
		commands: map[string]time.Time{}, rerun: execEvery,
	}
}

func (w *watcher) run(ctx context.Context) {
	fs, err := fsnotify.NewWatcher()
	var events chan fsnotify.Event
	var failures chan error
	if err != nil {
		w.log.Warn("cannot watch the configuration for changes, reading it regularly instead",
			"file", w.path, "every", w.backstop, "error", err)
	} else {
		defer fs.Close()
		events, failures = fs.Events, fs.Errors
		w.watch(fs)
	}
	quiet := time.NewTimer(w.settle) // what changed before watching began
	defer quiet.Stop()
	tick := time.NewTicker(w.backstop)
	defer tick.Stop()
	w.ready()
	soon := true // quiet is running because of an event
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			// Which file an event names is not decisive: Kubernetes swaps a
			// symbolic link beside the file, editors rename others onto it. The
			// first event starts the clock and later ones do not put it off: in
			// a directory where something is always written (a store, an audit
			// log) it would never be quiet. reload sees by itself when the file
			// is still being written.
			if !soon {
				soon = true
				quiet.Reset(w.settle)
			}
		case err, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			w.log.Warn("watching the configuration: events were lost, reading it", "file", w.path, "error", err)
			quiet.Reset(w.settle)
		case <-tick.C:
			if w.changed() {
				quiet.Reset(w.settle)
			}
		case <-quiet.C:
			if soon = !w.reload(); soon {
				quiet.Reset(w.settle)
			}
			if fs != nil {
				w.watch(fs)
			}
		}
	}
}

// changed reports whether any source differs from what was last seen.
func (w *watcher) changed() bool {
	if len(w.sources) == 0 {
		return true
	}
	for path, sum := range w.sources {
		if w.current(path) != sum {
			return true
		}
	}
	return false
}

// current returns the fingerprint of a source now, "" if it cannot be read.
func (w *watcher) current(path string) Secret {
	if path == w.path {
		data, err := readFile(path)
		if err != nil {
			return ""
		}
		return fingerprint(data)
	}
	if command, ok := strings.CutPrefix(path, "exec:"); ok {
		return w.printed(path, command)
	}
	_, sum, _ := readSecretFile(path)
	return sum
}

// printed returns the fingerprint of what a command prints. It is run now and
// then, not at every look.
func (w *watcher) printed(source, command string) Secret {
	ran, known := w.commands[source]
	if !known {
		w.commands[source] = time.Now() // when the configuration was read
		return w.sources[source]
	}
	if time.Since(ran) < w.rerun {
		return w.sources[source]
	}
	w.commands[source] = time.Now()
	argv, err := parseExec(command)
	if err != nil {
		return ""
	}
	_, sum, err := runSecret(argv)
	if err != nil {
		w.log.Warn("a secret of the configuration could not be read again, the last one stays in use", "error", err)
		return w.sources[source]
	}
	return sum
}

// reload reads the file and reports what is new. It returns false if the file
// was being written meanwhile and must be read again.
func (w *watcher) reload() bool {
	if !w.changed() {
		return true
	}
	before, _ := os.Stat(w.path)
	data, err := readFile(w.path)
	if err != nil {
		w.sources = map[string]Secret{w.path: ""}
		if w.broken != err.Error() {
			w.broken = err.Error()
			w.onError(Errors{{File: w.path, Message: err.Error()}})
		}
		return true
	}
	w.broken = ""
	after, err := os.Stat(w.path)
	if err != nil || before == nil || !os.SameFile(before, after) || before.Size() != after.Size() ||
		!before.ModTime().Equal(after.ModTime()) || after.Size() != int64(len(data)) {
		return false
	}
	// A file whose time stamp is fresher than the settling time may be half
	// written: truncating and writing are two steps.
	age := time.Since(after.ModTime())
	if age >= 0 && age < w.settle {
		return false
	}
	c, sources, errs := parse(w.path, data, os.LookupEnv)
	if len(errs) > 0 && age >= 0 && age < patience*w.settle {
		return false // a bad file may be half of a good one, so it gets more time
	}
	w.sources = sources
	if len(errs) > 0 {
		w.onError(errs)
		return true
	}
	w.onChange(c)
	return true
}

// watch makes fsnotify look at every directory in which a change can replace a
// source, and at the files themselves, because a file that is a mount of its
// own gives no event in its directory.
func (w *watcher) watch(fs *fsnotify.Watcher) {
	want := map[string]bool{filepath.Dir(w.path): true}
	paths := []string{w.path}
	for path := range w.sources {
		if !strings.HasPrefix(path, "exec:") {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		for range 16 { // a chain of symbolic links
			want[filepath.Dir(path)] = true
			target, err := os.Readlink(path)
			if err != nil {
				break
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			path = target
		}
		if real, err := filepath.EvalSymlinks(path); err == nil {
			want[real], want[filepath.Dir(real)] = true, true
		}
	}
	for path := range w.watched {
		if !want[path] {
			// The watch of something deleted is already gone.
			if err := fs.Remove(path); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
				w.log.Debug("watching the configuration", "path", path, "error", err)
			}
			delete(w.watched, path)
		}
	}
	for path := range want {
		// Adding again is how a replaced file or directory gets its new watch.
		if err := fs.Add(path); err != nil {
			if !w.watched[path] && !os.IsNotExist(err) {
				w.log.Warn("cannot watch a path of the configuration, reading it regularly instead",
					"path", path, "every", w.backstop, "error", err)
			}
			continue
		}
		w.watched[path] = true
	}
}
