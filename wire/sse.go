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

	cut  []byte // what was read of an event that is too large
	open bool   // its line was not read to the end
}

// NewEventReader reads events from r. max is in bytes and must be positive.
func NewEventReader(r io.Reader, max int64) *EventReader {
	return &EventReader{r: bufio.NewReaderSize(r, 16<<10), max: max}
}

// Next returns the next event, io.EOF at a clean end, io.ErrUnexpectedEOF when
// the stream ends inside an event. Comments are skipped. After ErrTooLarge only
// Skip makes sense.
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
				e.cut, e.open = ev.Data, false
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

// endsKept is how much of the ends of an event Skip returns, in bytes.
const endsKept = 4 << 10

// Skip passes over the rest of an event that was too large, so that Next can
// read what follows. It returns the beginning and the end of its data, which may
// tell what it was.
func (e *EventReader) Skip() (head, tail []byte, err error) {
	head = bytes.Clone(e.cut[:min(endsKept, len(e.cut))])
	tail = bytes.Clone(e.cut[len(e.cut)-min(endsKept, len(e.cut)):])
	inside := e.open
	e.cut, e.open = nil, false
	for {
		b, err := e.r.ReadSlice('\n')
		if err == nil && !inside && len(bytes.TrimRight(b, "\r\n")) == 0 {
			return head, tail, nil
		}
		if tail = append(tail, b...); len(tail) > 4*endsKept {
			tail = append(tail[:0:0], tail[len(tail)-endsKept:]...)
		}
		if inside = errors.Is(err, bufio.ErrBufferFull); err != nil && !inside {
			return head, tail, err
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
			e.cut, e.open = bytes.TrimPrefix(bytes.TrimPrefix(out, []byte("data:")), []byte(" ")), !bytes.HasSuffix(out, []byte("\n"))
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
