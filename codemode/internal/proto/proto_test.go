package proto

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func some(k Kind) int {
	if k == Log {
		return 100
	}
	return -1
}

func TestFrames(t *testing.T) {
	frame := append(AppendHeader(nil, Log, 7, 3), "abc"...)
	f, err := Read(bufio.NewReader(bytes.NewReader(frame)), some)
	if err != nil || f.Kind != Log || f.ID != 7 || string(f.Data) != "abc" {
		t.Errorf("%+v, %v", f, err)
	}
	for name, c := range map[string]struct {
		in       []byte
		protocol bool
	}{
		"nothing":        {nil, false},
		"half a header":  {frame[:5], false},
		"half a payload": {frame[:13], false},
		"other kind":     {AppendHeader(nil, Call, 1, 0), true},
		"kind zero":      {make([]byte, HeaderLen), true},
		"too long":       {AppendHeader(nil, Log, 1, 101), true},
		"4 GB":           {[]byte{255, 255, 255, 255, byte(Log), 0, 0, 0, 0, 0, 0, 0}, true},
		"padding":        {[]byte{0, 0, 0, 0, byte(Log), 0, 1, 0, 0, 0, 0, 0}, true},
	} {
		_, err := Read(bufio.NewReader(bytes.NewReader(c.in)), some)
		if err == nil || errors.Is(err, ErrProtocol) != c.protocol {
			t.Errorf("%s: %v", name, err)
		}
		if !c.protocol && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func list(tools ...Tool) Tools {
	var b []byte
	for _, t := range tools {
		b = AppendTool(b, t)
	}
	return Tools(b)
}

func TestMessages(t *testing.T) {
	some := []Tool{{"a\x00b", "a_b", "a", strings.Repeat("b", 300)}, {"c", "c", "", ""}, {"", "", "", ""}, {"a_b", "a_b", "a", "b"}, {"a-b_c", "a$b_c", "a$b", "c"}}
	m := &RunMsg{Code: "const x = '\x00'", Tools: list(some...), CPUMillis: 5, MaxCalls: 9}
	b, err := EncodeRun(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRun(b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
	var all []Tool
	parts := ""
	for tool, part := range got.Tools.All() {
		all, parts = append(all, tool), parts+string(part)
	}
	if !reflect.DeepEqual(all, some) || parts != string(got.Tools) {
		t.Errorf("tools %q became %q, in parts %q", some, all, parts)
	}
	if len(list(some[3])) != len("a_b")+4 {
		t.Errorf("names that are parts of the outward name are sent again: %q", list(some[3]))
	}
	for i := range b[:len(b)-1] {
		if got, err := DecodeRun(b[:i]); err == nil && len(got.Tools) >= len(m.Tools) {
			t.Errorf("%d bytes were enough", i)
		}
	}
	c, err := EncodeCall("näme", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	name, args, err := DecodeCall(c)
	if err != nil || name != "näme" || string(args) != "{}" {
		t.Errorf("%q %q %v", name, args, err)
	}
	if _, err := EncodeCall(strings.Repeat("x", 1<<16), nil); err == nil {
		t.Error("a name of 64 KiB was accepted")
	}
	why, run := DecodeOrder(Order(StopCPU, 77))
	if why != StopCPU || run != 77 {
		t.Errorf("%c %d", why, run)
	}
	if CallID(1, 5) == CallID(2, 5) {
		t.Error("calls of two runs have one number")
	}
	for _, n := range []uint32{0, 1, 1 << 31} {
		if got, err := DecodeIdle(EncodeIdle(n)); err != nil || got != n {
			t.Errorf("%d answers became %d, %v", n, got, err)
		}
	}
	if _, err := DecodeIdle([]byte{1, 2, 3}); !errors.Is(err, ErrProtocol) {
		t.Errorf("three bytes: %v", err)
	}
	d, err := EncodeDone(&DoneMsg{OK: true, Value: json.RawMessage(`"<&>"`)})
	if err != nil || !bytes.Contains(d, []byte(`"<&>"`)) {
		t.Errorf("%s, %v", d, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(append(AppendHeader(nil, Log, 7, 3), "abc"...))
	f.Add([]byte{255, 255, 255, 255, 6, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			fr, err := Read(r, some)
			if err != nil {
				return
			}
			if fr.Kind != Log || len(fr.Data) > 100 {
				t.Fatalf("%+v", fr)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	b, _ := EncodeRun(&RunMsg{Code: "x", Tools: list(Tool{"a_d", "b", "c", "d"}, Tool{"a_d", "a_d", "a", "d"})})
	f.Add(b)
	f.Add([]byte{1, 0, 'a'})
	f.Fuzz(func(t *testing.T, in []byte) {
		if m, err := DecodeRun(in); err == nil {
			if again, err := EncodeRun(m); err != nil {
				t.Fatalf("%+v: %v %q", m, err, again)
			}
		}
		if name, args, err := DecodeCall(in); err == nil {
			if again, err := EncodeCall(name, args); err != nil || !bytes.Equal(again, in) {
				t.Fatalf("%q %q: %v", name, args, err)
			}
		}
	})
}
