package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Event is one server-sent event (WHATWG HTML, section 9.2).
type Event struct {
	ID    string
	Name  string // empty: "message"
	Data  []byte // nil: the event had no data (a priming event)
	Retry time.Duration
}

// ErrTooLarge means that a message exceeds the configured size.
var ErrTooLarge = errors.New("message exceeds the size limit")

// EventReader reads server-sent events, each of at most max bytes of data.
type EventReader struct {
	r       *bufio.Reader
	max     int64
	started bool
}

// NewEventReader reads events from r. max is in bytes and must be positive.
func NewEventReader(r io.Reader, max int64) *EventReader {
	return &EventReader{r: bufio.NewReaderSize(r, 16<<10), max: max}
}

// Next returns the next event, io.EOF at a clean end, io.ErrUnexpectedEOF when
// the stream ends inside an event. Comments are skipped.
func (e *EventReader) Next() (Event, error) {
	var ev Event
	any := false
	for {
		line, err := e.line()
		if err != nil {
			if err == io.EOF && (any || len(line) > 0) {
				return ev, io.ErrUnexpectedEOF
			}
			return ev, err
		}
		if len(line) == 0 {
			if any {
				return ev, nil
			}
			continue
		}
		if line[0] == ':' {
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if ev.Data != nil {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data = append(ev.Data, value...)
			if ev.Data == nil {
				ev.Data = []byte{}
			}
			if int64(len(ev.Data)) > e.max {
				return ev, fmt.Errorf("%w of %d bytes", ErrTooLarge, e.max)
			}
			any = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 { // the standard ignores such ids
				ev.ID, any = string(value), true
			}
		case "event":
			ev.Name, any = string(value), true
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				ev.Retry, any = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// line reads up to CR, LF or CRLF, without it.
func (e *EventReader) line() ([]byte, error) {
	var out []byte
	for {
		b, err := e.r.ReadSlice('\n')
		if !e.started {
			e.started = true
			b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
		}
		out = append(out, b...)
		if int64(len(out)) > e.max+16 {
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLarge, e.max)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return out, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(out, []byte("\n")), []byte("\r")), nil
	}
}

// AppendEvent appends one event in wire form. Line breaks in the data (LF, CR,
// CRLF) begin a new data line and are read as LF by the other side: for JSON,
// where they can only stand between tokens, that changes nothing.
func AppendEvent(b []byte, ev Event) []byte {
	if ev.Name != "" {
		b = append(append(append(b, "event: "...), ev.Name...), '\n')
	}
	if ev.ID != "" {
		b = append(append(append(b, "id: "...), ev.ID...), '\n')
	}
	if ev.Retry > 0 {
		b = append(strconv.AppendInt(append(b, "retry: "...), ev.Retry.Milliseconds(), 10), '\n')
	}
	for line := range bytes.SplitSeq(ev.Data, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		for part := range bytes.SplitSeq(line, []byte("\r")) {
			b = append(append(append(b, "data: "...), part...), '\n')
		}
	}
	return append(b, '\n')
}
