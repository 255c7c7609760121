package proto

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Layer is one wall around a worker.
type Layer struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // why not, or what exactly holds
}

// ReadyMsg is a worker's first message.
type ReadyMsg struct {
	Layers []Layer `json:"layers"`
}

// RunMsg is one run.
type RunMsg struct {
	Code  string `json:"-"`
	Tools Tools  `json:"-"`

	KeepTools bool `json:"keep_tools,omitempty"` // they are those of the run before, and Tools is empty

	CPUMillis  int `json:"cpu_ms"`
	WallMillis int `json:"wall_ms"` // only named in messages: the gateway keeps the clock
	MemoryMB   int `json:"memory_mb"`
	MaxCalls   int `json:"max_calls"`
	MaxArgs    int `json:"max_args"`    // bytes of one call's arguments
	MaxLogs    int `json:"max_logs"`    // bytes of console output
	MaxValue   int `json:"max_value"`   // bytes of the value
	MaxBlocks  int `json:"max_content"` // bytes of the content blocks

	// Withheld are tools that there would be, and why there are not.
	Withheld []Withheld `json:"withheld,omitempty"`

	// What a replay needs to be the same: chance, and the time at the start.
	Seed        uint64 `json:"seed"`
	StartMillis int64  `json:"start_ms"` // Unix milliseconds

	// Marker, if not empty, makes the run a guarded one, in which calls can have
	// their answers later. In arguments it is the only member of an object that
	// is a Ref to such an answer.
	Marker string `json:"marker,omitempty"`
}

// EncodeRun is the payload of a Run frame.
func EncodeRun(m *RunMsg) ([]byte, error) {
	head, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the limits of a run: %w", err)
	}
	b := make([]byte, 0, 8+len(head)+len(m.Code)+len(m.Tools))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Code)))
	b = append(b, m.Code...)
	return append(b, m.Tools...), nil
}

// DecodeRun is the reverse of EncodeRun.
func DecodeRun(b []byte) (*RunMsg, error) {
	part := func() ([]byte, error) {
		if len(b) < 4 {
			return nil, fmt.Errorf("%w: run frame too short", ErrProtocol)
		}
		n := uint64(binary.LittleEndian.Uint32(b))
		if uint64(len(b)-4) < n {
			return nil, fmt.Errorf("%w: run frame shorter than its parts", ErrProtocol)
		}
		p := b[4 : 4+n]
		b = b[4+n:]
		return p, nil
	}
	head, err := part()
	if err != nil {
		return nil, err
	}
	code, err := part()
	if err != nil {
		return nil, err
	}
	m := &RunMsg{Code: string(code)}
	if err := json.Unmarshal(head, m); err != nil {
		return nil, fmt.Errorf("%w: limits of the run: %v", ErrProtocol, err)
	}
	m.Tools = Tools(b)
	return m, m.Tools.check()
}

// TimerQuery is the name of the Query with which a script waits; its arguments
// are the milliseconds, at most MaxTimerMillis.
const (
	TimerQuery     = "$timer"
	MaxTimerMillis = 24 * 60 * 60 * 1000
)

// AnswerLen is what the payload of a Result or Error holds before its JSON: the
// time at which it was given, which is the script's clock from then on.
const AnswerLen = 8

// AnswerHead is that part for a time in Unix milliseconds.
func AnswerHead(now int64) [AnswerLen]byte {
	var h [AnswerLen]byte
	binary.LittleEndian.PutUint64(h[:], uint64(now))
	return h
}

// DecodeAnswer splits the payload of a Result or Error.
func DecodeAnswer(b []byte) (now int64, data []byte, err error) {
	if len(b) < AnswerLen {
		return 0, nil, fmt.Errorf("%w: answer of %d bytes", ErrProtocol, len(b))
	}
	return int64(binary.LittleEndian.Uint64(b)), b[AnswerLen:], nil
}

// Ref names the answer of a call, or a part of it.
type Ref struct {
	Question int      `json:"q"`              // as the host numbers it, from 1
	Raw      bool     `json:"raw,omitempty"`  // of the result as it is, not of its value
	Path     []string `json:"path,omitempty"` // names of members and numbers of items
}

// MaxPath is the length of the longest Path.
const MaxPath = 32

// LookMsg says that a script wants to know an answer that is known later. The
// worker does nothing more.
type LookMsg struct {
	Taken    uint32 `json:"taken"`        // answers, up to the one that let the script go on to here
	Question int    `json:"q"`            // whose answer it wants to know
	At       string `json:"at,omitempty"` // "line:column"
}

// ErrorMsg is why a call failed.
type ErrorMsg struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// DoneMsg is how a run ended.
type DoneMsg struct {
	OK       bool              `json:"ok"`
	Value    json.RawMessage   `json:"value,omitempty"`
	ValueCut bool              `json:"value_cut,omitempty"`
	Content  []json.RawMessage `json:"content,omitempty"`
	LogsCut  int               `json:"logs_cut,omitempty"`

	Kind    string `json:"kind,omitempty"` // of the error; see codemode.ScriptError
	Name    string `json:"name,omitempty"`
	Message string `json:"message,omitempty"`
	Code    string `json:"code,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`

	CPUMicros int64 `json:"cpu_us,omitempty"`
	HeapKB    int64 `json:"heap_kb,omitempty"` // after the run: a big heap is not reused
}

// EncodeDone is the payload of a Done frame.
func EncodeDone(d *DoneMsg) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the value must leave byte for byte
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("encode the end of a run: %w", err)
	}
	return b.Bytes(), nil
}

// callBits is how many of an id's bits number the calls within a run.
const callBits = 24

// CallID is the id of the n-th call or query (from 1) of a worker's run. It is
// unique in the life of a worker, so a late answer meets no wrong call.
func CallID(run, n uint32) uint32 { return run<<callBits | n }

// CallNumber is the n of a CallID.
func CallNumber(id uint32) uint32 { return id & (1<<callBits - 1) }

// OfRun tells whether an id is of a call or query of a run.
func OfRun(id, run uint32) bool { return id>>callBits == run }
