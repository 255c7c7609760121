// Command evilworker plays a sandbox worker that a script has taken over. The
// tests start it under names such as "evil-flood"; the part after the dash
// says what it does once it has a run. It exists to prove that the gateway
// needs no cooperation from a worker.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/confine"
	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

func main() {
	_, mode, _ := strings.Cut(filepath.Base(os.Args[0]), "-")
	socket := os.NewFile(3, "socket")
	w := &wire{f: socket, uid: os.Getuid()}
	switch mode {
	case "exits":
		os.Exit(1)
	case "mute":
		time.Sleep(time.Hour)
	case "notready":
		w.frame(proto.Done, 1, []byte("{}"))
		time.Sleep(time.Hour)
	case "hugeready":
		w.raw(binary.LittleEndian.AppendUint32(nil, 1<<31))
		w.raw([]byte{byte(proto.Ready), 0, 0, 0, 0, 0, 0, 0})
		time.Sleep(time.Hour)
	}
	layers := `{"layers":[{"name":"seccomp","ok":true}]}`
	if strings.HasPrefix(mode, "probe") {
		time.Sleep(time.Millisecond) // the poller, as in the real worker
		confine.Apply(confine.Options{DataBytes: 512 << 20, CPUSeconds: 60, Nice: 5, Given: []int{3, 4}})
	}
	w.frame(proto.Ready, 0, []byte(layers))
	br := bufio.NewReader(socket)
	f, err := proto.Read(br, func(proto.Kind) int { return 64 << 20 })
	if err != nil {
		return
	}
	misbehave(mode, w, f.ID)
	time.Sleep(time.Hour)
}

type wire struct {
	f   *os.File
	uid int // asked before the walls are up: afterwards even the question kills
}

func (w *wire) raw(b []byte) {
	if _, err := w.f.Write(b); err != nil {
		os.Exit(0)
	}
}

func (w *wire) frame(k proto.Kind, id uint32, data []byte) {
	w.raw(append(proto.AppendHeader(nil, k, id, len(data)), data...))
}

func (w *wire) call(k proto.Kind, id uint32, name, args string) {
	b, _ := proto.EncodeCall(name, []byte(args))
	w.frame(k, id, b)
}

func misbehave(mode string, w *wire, run uint32) {
	const ok = `{"ok":true,"value":1}`
	switch mode {
	case "noise":
		r := rand.New(rand.NewPCG(1, 2))
		for {
			b := make([]byte, 4096)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			w.raw(b)
		}
	case "hugeframe":
		w.raw(binary.LittleEndian.AppendUint32(nil, 0xffffffff))
		w.raw([]byte{byte(proto.Done), 0, 0, 0, 1, 0, 0, 0})
	case "bigclaim": // says it sends the most that is allowed, and does not
		w.raw(binary.LittleEndian.AppendUint32(nil, 1<<20))
		w.raw([]byte{byte(proto.Call), 0, 0, 0, 1, 0, 0, 1})
	case "padding":
		w.raw([]byte{0, 0, 0, 0, byte(proto.Log), 1, 0, 0, 0, 0, 0, 0})
	case "kind":
		w.frame(proto.Kind(99), run, nil)
	case "gatewayskind":
		w.frame(proto.Result, run, []byte("1"))
	case "calls":
		for i := uint32(1); ; i++ {
			w.call(proto.Call, proto.CallID(run, i), "s_t", "{}")
		}
	case "queries":
		for i := uint32(1); ; i++ {
			w.call(proto.Query, proto.CallID(run, i), "tools", "[]")
		}
	case "bigcalls":
		args := `"` + strings.Repeat("x", 1<<20-10) + `"`
		for i := uint32(1); ; i++ {
			w.call(proto.Call, proto.CallID(run, i), "s_hang", args)
		}
	case "order":
		w.call(proto.Call, proto.CallID(run, 2), "s_t", "{}")
	case "otherrun":
		w.call(proto.Call, proto.CallID(run+1, 1), "s_t", "{}")
	case "badargs":
		w.call(proto.Call, proto.CallID(run, 1), "s_t", "{not json")
	case "shortcall":
		w.frame(proto.Call, proto.CallID(run, 1), []byte{255, 255, 'x'})
	case "othertool":
		w.call(proto.Call, proto.CallID(run, 1), "secret_tool", "{}")
		time.Sleep(200 * time.Millisecond)
		w.frame(proto.Done, run, []byte(ok))
	case "deaf": // asks and never reads: the answers fill the socket
		for i := uint32(1); i <= 100; i++ {
			w.call(proto.Call, proto.CallID(run, i), "s_big", "{}")
		}
	case "logs":
		for {
			w.frame(proto.Log, 0, []byte(strings.Repeat("x", 1000)))
		}
	case "emptylogs":
		for {
			w.frame(proto.Log, 0, nil)
		}
	case "badutf8":
		w.frame(proto.Log, 0, []byte{0xff, 0xfe})
		w.frame(proto.Done, run, []byte(ok))
	case "baddone":
		w.frame(proto.Done, run, []byte(`{"ok":`))
	case "wrongend":
		w.frame(proto.Done, run+7, []byte(ok))
	case "kindofend":
		w.frame(proto.Done, run, []byte(`{"ok":false,"kind":"approved"}`))
	case "deepdone":
		w.frame(proto.Done, run, []byte(`{"ok":true,"value":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`))
	case "bigvalue":
		w.frame(proto.Done, run, []byte(`{"ok":true,"value":"`+strings.Repeat("x", 5<<20)+`"}`))
	case "bigmessage":
		w.frame(proto.Done, run, []byte(`{"ok":false,"kind":"exception","name":"`+strings.Repeat("n", 10_000)+`","message":"`+strings.Repeat("x", 1<<20)+`","line":-5}`))
	case "dribble": // a frame that never ends
		w.raw(proto.AppendHeader(nil, proto.Log, 0, 60_000))
		for {
			w.raw([]byte{0})
			time.Sleep(10 * time.Millisecond)
		}
	case "silence":
	case "stderr":
		for {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 4000))
		}
	case "dies":
		os.Exit(7)
	case "spins":
		for {
		}
	case "liar": // waits for a person, it says, and computes
		w.call(proto.Call, proto.CallID(run, 1), "s_person", "{}")
		w.frame(proto.Idle, run, proto.EncodeIdle(0))
		for {
		}
	case "lateidle": // counts answers that were never sent
		w.frame(proto.Idle, run, proto.EncodeIdle(1))
	case "idles": // the same again and again
		for {
			w.frame(proto.Idle, run, proto.EncodeIdle(0))
		}
	case "longidle":
		w.frame(proto.Idle, run, make([]byte, 8))
	case "otheridle":
		w.frame(proto.Idle, run+1, proto.EncodeIdle(0))
	case "callsidle": // calls although its script waits
		w.frame(proto.Idle, run, proto.EncodeIdle(0))
		w.call(proto.Call, proto.CallID(run, 1), "s_t", "{}")
	case "probefile":
		_, err := os.ReadFile("/etc/passwd")
		_, err2 := os.Create("/tmp/evil")
		w.frame(proto.Done, run, fmt.Appendf(nil, `{"ok":true,"value":[%t,%t,%d]}`, err != nil, err2 != nil, w.uid))
	case "probeexec":
		_, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		w.frame(proto.Done, run, fmt.Appendf(nil, `{"ok":true,"value":%t}`, err != nil))
	case "probesocket":
		_, _ = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		w.frame(proto.Done, run, []byte(ok))
	case "probekill":
		_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
		w.frame(proto.Done, run, []byte(ok))
	}
}
