package codemode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
	"github.com/mcp-portal/mcp-portal/codemode/internal/worker"
)

const (
	readyWithin   = 20 * time.Second // a worker that takes longer to start is broken
	maxReady      = 64 << 10
	stderrKept    = 2 << 10
	stderrAllowed = 64 << 10 // bytes; a worker that writes more is up to something
)

// process is one worker as this side sees it.
type process struct {
	cmd     *exec.Cmd
	socket  *os.File
	control *os.File // orders; closing it ends the worker
	br      *bufio.Reader
	stderr  *tail
	born    time.Time
	args    []string // its limits
	layers  []proto.Layer

	writing sync.Mutex
	uses    int       // runs so far
	offered *offered  // in its last run
	owner   string    // "": never used
	idle    time.Time // since when

	killed atomic.Bool
	exited chan struct{}
	state  *os.ProcessState // after exited
}

// tail keeps the beginning of what a worker writes to its standard error.
type tail struct {
	mu   sync.Mutex
	kept []byte
	n    int
	over func()
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.n += len(p)
	if room := stderrKept - len(t.kept); room > 0 {
		t.kept = append(t.kept, p[:min(room, len(p))]...)
	}
	over := t.n > stderrAllowed
	t.mu.Unlock()
	if over {
		t.over()
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// spawner starts workers from one operating system thread: the kernel's signal
// at the parent's death is tied to the thread that started the child.
type spawner struct {
	executable string
	orders     chan chan<- spawned
	done       <-chan struct{}
}

type spawned struct {
	p   *process
	err error
}

func (s *spawner) loop(args func() []string) {
	// Never unlocked: the thread must die with this goroutine, not be reused.
	runtime.LockOSThread()
	for {
		select {
		case <-s.done:
			return
		case reply := <-s.orders:
			p, err := startProcess(s.executable, args())
			reply <- spawned{p, err}
		}
	}
}

// start starts one worker and waits until it is ready.
func (s *spawner) start(ctx context.Context) (*process, error) {
	reply := make(chan spawned, 1)
	select {
	case s.orders <- reply:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, errClosed
	}
	got := <-reply
	if got.err != nil {
		return nil, fmt.Errorf("start the sandbox worker %s: %w", s.executable, got.err)
	}
	if err := got.p.waitReady(); err != nil {
		return nil, err
	}
	return got.p, nil
}

func startProcess(executable string, args []string) (*process, error) {
	p, err := tryStart(executable, args, os.Geteuid() == 0)
	if errors.Is(err, syscall.EPERM) && os.Geteuid() == 0 {
		// Root without the right to change users (a container with dropped
		// capabilities): the worker reports it as a missing layer.
		return tryStart(executable, args, false)
	}
	return p, err
}

func tryStart(executable string, args []string, dropRoot bool) (*process, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, fmt.Errorf("make the socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "worker's end")
	ours := os.NewFile(uintptr(fds[0]), "gateway's end")
	orders, control, err := os.Pipe()
	if err != nil {
		theirs.Close()
		ours.Close()
		return nil, fmt.Errorf("make the control pipe: %w", err)
	}
	p := &process{socket: ours, control: control, born: time.Now(), args: args, exited: make(chan struct{})}
	p.stderr = &tail{over: p.kill}
	p.cmd = exec.Command(executable, append([]string{WorkerCommand}, args...)...)
	p.cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "TZ=UTC"}
	p.cmd.Dir = "/"
	p.cmd.ExtraFiles = []*os.File{theirs, orders}
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = processAttributes(dropRoot)
	p.cmd.WaitDelay = time.Second
	err = p.cmd.Start()
	theirs.Close()
	orders.Close()
	if err != nil {
		ours.Close()
		control.Close()
		return nil, err
	}
	p.br = bufio.NewReaderSize(ours, 64<<10)
	go func() {
		_ = p.cmd.Wait() // the state says more than the error
		p.state = p.cmd.ProcessState
		close(p.exited)
	}()
	return p, nil
}

func socketpair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds, unix.SetNonblock(fds[0], true)
}

func (p *process) waitReady() error {
	fail := func(err error) error {
		p.kill()
		<-p.exited
		first, _, _ := strings.Cut(strings.TrimSpace(p.stderr.String()), "\n") // the rest is a stack trace
		return fmt.Errorf("the sandbox worker did not become ready: %w (%s) %s", err, p.state, cutText(first, 300))
	}
	if err := p.socket.SetReadDeadline(time.Now().Add(readyWithin)); err != nil {
		return fail(err)
	}
	f, err := proto.Read(p.br, func(k proto.Kind) int {
		if k == proto.Ready {
			return maxReady
		}
		return -1
	})
	if err != nil {
		return fail(err)
	}
	var m proto.ReadyMsg
	if err := json.Unmarshal(f.Data, &m); err != nil {
		return fail(err)
	}
	p.layers = m.Layers
	if err := p.socket.SetReadDeadline(time.Time{}); err != nil {
		return fail(err)
	}
	return nil
}

// missing returns the required layers that the worker does not have, and why.
func (p *process) missing(required []string) []string {
	var out []string
	for _, name := range required {
		i := slices.IndexFunc(p.layers, func(l proto.Layer) bool { return l.Name == name })
		switch {
		case i < 0:
			out = append(out, name+" (not reported)")
		case !p.layers[i].OK:
			out = append(out, name+" ("+p.layers[i].Detail+")")
		}
	}
	return out
}

// kill ends the worker at once, whatever it does. It can be called repeatedly
// and from any goroutine.
func (p *process) kill() {
	if p.killed.Swap(true) {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	p.control.Close()
	p.socket.Close()
}

func (p *process) dead() bool {
	if p.killed.Load() {
		return true
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// send writes one frame.
func (p *process) send(k proto.Kind, id uint32, parts ...[]byte) error {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	b := proto.AppendHeader(make([]byte, 0, proto.HeaderLen+n), k, id, n)
	for _, part := range parts {
		b = append(b, part...)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.socket.Write(b)
	return err
}

// order writes to the control pipe, which the worker reads even while a script
// keeps it busy.
func (p *process) order(why byte, run uint32) {
	o := proto.Order(why, run)
	_, _ = p.control.Write(o[:]) // a worker that does not listen is killed soon after
}

func workerArgs(memoryMB int, cpu time.Duration, runs int) []string {
	// A backstop for the life of the process; each run has its own limit.
	return worker.Args(memoryMB, 60+runs*int((cpu+time.Second-1)/time.Second))
}
