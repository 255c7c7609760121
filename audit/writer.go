package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

const (
	queueLen  = 4096            // events waiting for the disk
	maxBlock  = 2 * time.Second // how long a call may wait for room in the queue
	retryDisk = time.Second     // between attempts after a disk error
	giveUp    = 5 * time.Second // how long Close tries to write what is left
)

// Writer writes events as JSON lines. It implements Recorder.
type Writer struct {
	path      string // "" for a stream
	arguments bool
	log       *slog.Logger
	queue     chan Event
	block     time.Duration
	retry     time.Duration
	giveUp    time.Duration
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	finished  chan struct{}

	records sync.RWMutex // held for reading while an event is queued
	closed  bool

	written atomic.Int64
	lost    atomic.Int64

	mu       sync.Mutex
	err      string
	lostSaid int64 // lost events already logged

	out     io.Writer // used by the writing goroutine only
	file    *os.File
	refused bool // no new file after a disk error during Close
}

// Status is what the writer has done so far.
type Status struct {
	Written int64  `json:"written"`         // lines on disk or in the stream
	Lost    int64  `json:"lost"`            // events that could not be written
	Error   string `json:"error,omitempty"` // why writing does not work right now
}

// Open starts writing to the place the configuration names: a file, which is
// audit.jsonl beside the configuration unless named otherwise, or "stdout" or
// "stderr". The file is created with mode 0600 and appended to. A file that
// cannot be opened at start is an error; one that cannot be written later is
// shown by Status and logged, and healed when it can.
func Open(c config.Audit, configPath string, log *slog.Logger) (*Writer, error) {
	w := newWriter(c.Arguments, log)
	switch c.File {
	case "stdout":
		w.out = os.Stdout
	case "stderr":
		w.out = os.Stderr
	default:
		w.path = Path(c, configPath)
		if err := w.reopen(); err != nil {
			return nil, fmt.Errorf("opening the audit file %s: %w; let the portal's user write there or set audit.file", w.path, err)
		}
	}
	go w.run()
	return w, nil
}

// Path returns the file that Open writes to, or "" for a stream.
func Path(c config.Audit, configPath string) string {
	switch c.File {
	case "stdout", "stderr":
		return ""
	case "":
		return filepath.Join(filepath.Dir(configPath), "audit.jsonl")
	}
	if filepath.IsAbs(c.File) {
		return c.File
	}
	return filepath.Join(filepath.Dir(configPath), c.File)
}

func newWriter(arguments bool, log *slog.Logger) *Writer {
	return &Writer{
		arguments: arguments, log: log, queue: make(chan Event, queueLen),
		block: maxBlock, retry: retryDisk, giveUp: giveUp,
		closing: make(chan struct{}), finished: make(chan struct{}),
	}
}

// Record queues an event. While the queue is full, which means that the disk
// is slower than the calls, it waits a short time; an event that still finds
// no room is counted and logged as lost. It does not look at the end of ctx:
// a call that was cancelled happened nevertheless.
func (w *Writer) Record(_ context.Context, e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	// Bounding here keeps what waits in the queue small.
	e = bound(e, w.arguments)
	w.records.RLock()
	defer w.records.RUnlock()
	if w.closed {
		w.lose(1)
		w.sayLost()
		return
	}
	select {
	case w.queue <- e:
		return
	default:
	}
	wait := time.NewTimer(w.block)
	defer wait.Stop()
	select {
	case w.queue <- e:
	case <-wait.C:
		w.lose(1)
	}
}

// Status returns counts and the present error.
func (w *Writer) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{Written: w.written.Load(), Lost: w.lost.Load(), Error: w.err}
}

// Close writes what is queued and closes the file. It returns an error if
// events were lost on the way.
func (w *Writer) Close() error {
	w.closeOnce.Do(func() {
		before := w.lost.Load()
		close(w.closing)
		w.records.Lock()
		w.closed = true
		close(w.queue)
		w.records.Unlock()
		<-w.finished
		if n := w.lost.Load() - before; n > 0 {
			w.closeErr = fmt.Errorf("closing the audit file %s: %d events could not be written: %s", w.path, n, w.Status().Error)
		}
	})
	return w.closeErr
}

func (w *Writer) lose(n int64) { w.lost.Add(n) }

// sayLost logs losses that were not logged yet.
func (w *Writer) sayLost() {
	total := w.lost.Load()
	w.mu.Lock()
	n := total - w.lostSaid
	w.lostSaid = total
	reason := w.err
	w.mu.Unlock()
	if n > 0 {
		w.log.Error(fmt.Sprintf("audit: %d events lost", n), "file", w.path, "total", total, "error", reason)
	}
}

// run is the only goroutine that writes.
func (w *Writer) run() {
	defer close(w.finished)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-w.queue:
			if !ok {
				w.sayLost()
				if w.file != nil {
					_ = w.file.Close()
				}
				return
			}
			w.write(e)
		case <-tick.C:
			w.sayLost()
			w.follow()
		}
	}
}

// write puts one line into the file with a single call, so that lines of
// several processes cannot mix. After a disk error it tries again until there
// is room, or until the writer is closed; meanwhile the queue fills, and what
// finds no place there is counted.
func (w *Writer) write(e Event) {
	line, err := encode(e)
	if err != nil { // an Event holds nothing that cannot be encoded
		w.lose(1)
		w.setErr(err)
		return
	}
	var deadline <-chan time.Time
	closing := w.closing
	for {
		if err = w.writeLine(line); err == nil {
			w.written.Add(1)
			w.setErr(nil)
			return
		}
		w.setErr(err)
		w.sayLost()
		select {
		case <-closing:
			closing = nil
			if w.refused { // the time of Close was used up by an earlier event
				w.lose(1)
				return
			}
			timer := time.NewTimer(w.giveUp)
			defer timer.Stop()
			deadline = timer.C
		case <-deadline:
			w.refused = true
			w.lose(1)
			return
		case <-time.After(w.retry):
		}
	}
}

func (w *Writer) writeLine(line []byte) error {
	if w.path == "" {
		_, err := w.out.Write(line)
		return err
	}
	if w.file == nil || w.moved() {
		if err := w.reopen(); err != nil {
			return err
		}
	}
	n, err := w.file.Write(line)
	if err != nil && n > 0 {
		// Half a line on a full disk: take it back, so that the next attempt
		// does not continue it. Should that fail, a line break limits the
		// damage to this line, which readers count as damaged.
		if end, seekErr := w.file.Seek(0, io.SeekEnd); seekErr != nil || w.file.Truncate(end-int64(n)) != nil {
			_, _ = w.file.Write([]byte("\n"))
		}
	}
	return err
}

// follow opens a new file soon after a rotation, also when nothing is written,
// so that the tool that rotates can compress the old one.
func (w *Writer) follow() {
	if w.path == "" || w.file != nil && !w.moved() {
		return
	}
	if err := w.reopen(); err != nil {
		w.setErr(err)
	}
}

// moved reports whether the path is no longer the open file.
func (w *Writer) moved() bool {
	open, err := w.file.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(w.path)
	return err != nil || !os.SameFile(open, named)
}

func (w *Writer) reopen() error {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if w.file != nil {
		_ = w.file.Close()
	}
	w.file = f
	return w.finishLine()
}

// finishLine ends a line that a crash of an earlier process left half written.
func (w *Writer) finishLine() error {
	info, err := w.file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	r, err := os.Open(w.path)
	if err != nil {
		return nil // a write-only file is allowed; then this cannot be known
	}
	defer r.Close()
	last := make([]byte, 1)
	if _, err := r.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return nil
	}
	_, err = w.file.Write([]byte("\n"))
	return err
}

func (w *Writer) setErr(err error) {
	text := ""
	if err != nil {
		text = Redact(err.Error())
	}
	w.mu.Lock()
	was := w.err
	w.err = text
	w.mu.Unlock()
	switch {
	case text != "" && text != was:
		w.log.Error("audit: events cannot be written and wait", "file", w.path, "error", text)
	case text == "" && was != "":
		w.log.Info("audit: events are written again", "file", w.path)
	}
}

// encode returns the event as one line. JSON escapes control characters, so a
// value can neither break the line nor drive a terminal.
func encode(e Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encoding an audit event: %w", err)
	}
	return escapeC1(b.Bytes()), nil
}

var _ Recorder = (*Writer)(nil)
