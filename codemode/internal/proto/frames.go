package proto

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind says what a frame is.
type Kind uint8

// The kinds of frames; the arrow says who sends them.
const (
	Ready  Kind = 1 + iota // worker → gateway: ReadyMsg as JSON
	Run                    // gateway → worker: EncodeRun
	Call                   // worker → gateway: EncodeCall; id numbers the call
	Query                  // worker → gateway: EncodeCall; id numbers the call
	Result                 // gateway → worker: raw JSON for that id
	Error                  // gateway → worker: ErrorMsg as JSON for that id
	Log                    // worker → gateway: one console line
	Done                   // worker → gateway: DoneMsg as JSON; id is the run's
	Idle                   // worker → gateway: EncodeIdle; the script waits for an answer
	Later                  // gateway → worker: as Result, without JSON: the answer to that id is known later
	Look                   // worker → gateway: LookMsg as JSON; the script wants to know such an answer
)

// HeaderLen is the size of a frame's header in bytes.
const HeaderLen = 12

// ErrProtocol is wrapped by every error that the other side caused by breaking
// the rules of this package (as opposed to a closed connection).
var ErrProtocol = errors.New("sandbox protocol broken")

// Frame is one message.
type Frame struct {
	Kind Kind
	ID   uint32
	Data []byte
}

// AppendHeader appends the header of a frame with n bytes of payload.
func AppendHeader(b []byte, k Kind, id uint32, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = append(b, byte(k), 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, id)
}

// Read reads one frame. limit gives the largest payload of a kind in bytes; a
// negative limit forbids the kind. Nothing is allocated before the check.
func Read(r *bufio.Reader, limit func(Kind) int) (Frame, error) {
	h, err := r.Peek(HeaderLen)
	if err != nil {
		return Frame{}, err
	}
	n := uint64(binary.LittleEndian.Uint32(h))
	f := Frame{Kind: Kind(h[4]), ID: binary.LittleEndian.Uint32(h[8:])}
	if h[5]|h[6]|h[7] != 0 {
		return Frame{}, fmt.Errorf("%w: padding is not zero", ErrProtocol)
	}
	switch max := limit(f.Kind); {
	case max < 0:
		return Frame{}, fmt.Errorf("%w: unexpected frame of kind %d", ErrProtocol, f.Kind)
	case n > uint64(max):
		return Frame{}, fmt.Errorf("%w: frame of kind %d has %d bytes, at most %d are allowed", ErrProtocol, f.Kind, n, max)
	}
	if _, err := r.Discard(HeaderLen); err != nil {
		return Frame{}, err
	}
	f.Data = make([]byte, n)
	_, err = io.ReadFull(r, f.Data)
	return f, err
}

// EncodeCall is the payload of a Call or Query: the name, then the arguments.
func EncodeCall(name string, args []byte) ([]byte, error) {
	if len(name) > 0xffff {
		return nil, fmt.Errorf("the name has %d bytes, at most 65535 are possible", len(name))
	}
	b := make([]byte, 0, 2+len(name)+len(args))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = append(b, name...)
	return append(b, args...), nil
}

// DecodeCall splits what EncodeCall made.
func DecodeCall(b []byte) (name string, args []byte, err error) {
	if len(b) < 2 {
		return "", nil, fmt.Errorf("%w: call frame of %d bytes", ErrProtocol, len(b))
	}
	n := 2 + int(binary.LittleEndian.Uint16(b))
	if len(b) < n {
		return "", nil, fmt.Errorf("%w: call frame shorter than its name", ErrProtocol)
	}
	return string(b[2:n]), b[n:], nil
}

// EncodeIdle is the payload of an Idle frame: how many answers of the run the
// worker has taken so far. If that is all that were sent, the script can do
// nothing until the next one.
func EncodeIdle(taken uint32) []byte { return binary.LittleEndian.AppendUint32(nil, taken) }

// DecodeIdle is the reverse of EncodeIdle.
func DecodeIdle(b []byte) (taken uint32, err error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: idle frame of %d bytes", ErrProtocol, len(b))
	}
	return binary.LittleEndian.Uint32(b), nil
}

// OrderLen is the size of one order on the control pipe in bytes.
const OrderLen = 8

// Orders on the control pipe.
const (
	StopWall byte = 'w' // the wall clock of the run is used up
	StopCPU  byte = 'c' // the processor time of the run is used up
)

// Order encodes an order for one run.
func Order(why byte, run uint32) [OrderLen]byte {
	var o [OrderLen]byte
	o[0] = why
	binary.LittleEndian.PutUint32(o[4:], run)
	return o
}

// DecodeOrder is the reverse of Order.
func DecodeOrder(o [OrderLen]byte) (why byte, run uint32) {
	return o[0], binary.LittleEndian.Uint32(o[4:])
}
