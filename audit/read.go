package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"
)

// Filter chooses events. An empty field matches everything.
type Filter struct {
	Since      time.Time // not before
	Until      time.Time // before
	User       string
	Server     string
	Capability string
	Method     string
	Mode       string
	Run        string
	Status     string
	Decision   string
}

// Match reports whether the event is chosen.
func (f Filter) Match(e Event) bool {
	if !f.Since.IsZero() && e.Time.Before(f.Since) || !f.Until.IsZero() && !e.Time.Before(f.Until) {
		return false
	}
	for _, p := range [][2]string{
		{f.User, e.User}, {f.Server, e.Server}, {f.Capability, e.Capability}, {f.Method, e.Method},
		{f.Mode, e.Mode}, {f.Run, e.Run}, {f.Status, e.Status}, {f.Decision, e.Decision},
	} {
		if p[0] != "" && p[0] != p[1] {
			return false
		}
	}
	return true
}

// maxLine is more than the longest line the writer makes.
const maxLine = 1 << 20

// LineError is a line that is no event: damaged, or written by something else.
type LineError struct {
	Path string
	Line int // from 1
	Err  error
}

// Error names the file and line.
func (e *LineError) Error() string {
	return fmt.Sprintf("audit file %s line %d: %v", e.Path, e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Read goes through the events of a file that match the filter, in the order
// they were written, one line in memory at a time. A line that is no event
// yields a *LineError and reading goes on; any other error ends it. The last
// line without a line break is being written and is left out.
func Read(path string, f Filter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Event{}, fmt.Errorf("reading the audit file: %w", err))
			return
		}
		defer file.Close()
		r := bufio.NewReaderSize(file, 64<<10)
		for n := 1; ; n++ {
			line, tooLong, err := readLine(r)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Event{}, fmt.Errorf("reading the audit file %s: %w", path, err))
				return
			}
			if !tooLong && len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			var e Event
			if tooLong {
				err = fmt.Errorf("longer than %d bytes", maxLine)
			} else {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				if !yield(Event{}, &LineError{path, n, err}) {
					return
				}
				continue
			}
			if f.Match(e) && !yield(e, nil) {
				return
			}
		}
	}
}

// readLine returns the next complete line. It skips the rest of one that is
// too long instead of keeping it.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
			if len(line) > maxLine {
				line, tooLong = nil, true
			}
		}
		if err == nil {
			return line, tooLong, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
	}
}
