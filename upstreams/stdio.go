package upstreams

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// child is a stdio server: one process group, one JSON message per line.
type child struct {
	*pipe
	cmd     *exec.Cmd
	command string // argv[0], for errors
	in, out *os.File
	stderr  *stderrLog

	writing chan struct{} // holds the turn to write
	reads   chan struct{} // closed when stdout is read to its end
	exited  chan struct{} // closed when the process is reaped and its group killed
	grace   time.Duration // between the steps of ending it
}

// startChild starts the command. The process lives until the pipe is closed.
func startChild(s *session, cfg config.Server, grace time.Duration, start func(*exec.Cmd) error) (*pipe, error) {
	p := &pipe{session: s, waiting: map[string]*queue{}}
	c := &child{
		pipe: p, command: cfg.Command[0], grace: grace,
		writing: make(chan struct{}, 1), reads: make(chan struct{}), exited: make(chan struct{}),
		stderr: newStderrLog(s.log, s.peer),
	}
	failed := func(err error) (*pipe, error) {
		return nil, s.peer.fail("", KindProcess, false, err, "cannot start the command %q: %v. Check command, dir and PATH", c.command, err)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		closeAll(inR, inW)
		return failed(err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		closeAll(inR, inW, outR, outW)
		return failed(err)
	}
	c.cmd = exec.Command(cfg.Command[0], cfg.Command[1:]...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = inR, outW, errW
	c.cmd.Dir = cfg.Dir
	c.cmd.Env = childEnv(cfg)
	c.cmd.SysProcAttr = childAttributes()
	err = start(c.cmd)
	closeAll(inR, outW, errW)
	if err != nil {
		closeAll(inW, outR, errR)
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		var ee *exec.Error
		if errors.As(err, &ee) {
			err = ee.Err
		}
		return failed(err)
	}
	c.in, c.out = inW, outR
	p.write, p.shut = c.write, c.shut
	stderrDone := make(chan struct{})
	go func() { defer close(stderrDone); defer errR.Close(); c.stderr.drain(errR) }()
	go c.read()
	go c.wait(errR, stderrDone)
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// childEnv is the little a program needs, and what the configuration gives it:
// nothing of the portal's own environment leaks.
func childEnv(cfg config.Server) []string {
	env := map[string]string{}
	for _, k := range []string{"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ"} {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	for k, v := range cfg.Env {
		env[k] = v.Reveal()
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out
}

// write sends one line. Callers take turns. A line that has begun is finished
// also for a caller who has gone: what follows half of one could not be
// understood, which would end the calls of others. A child that reads nothing
// for long after that is ended.
func (c *child) write(ctx context.Context, b []byte) (bool, error) {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return false, ctx.Err()
	case <-c.lostCh:
		return false, c.why()
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	line := make([]byte, 0, len(b)+1)
	for _, ch := range b { // raw line breaks stand only between tokens
		if ch == '\n' || ch == '\r' {
			ch = ' '
		}
		line = append(line, ch)
	}
	line = append(line, '\n')
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.in.SetWriteDeadline(time.Now().Add(politeness))
		close(interrupted)
	})
	n, err := c.in.Write(line)
	if !stop() {
		<-interrupted
		_ = c.in.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return true, nil
	}
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		c.die()
		select { // why it ended is the better reason
		case <-c.lostCh:
		case <-time.After(c.grace):
		}
		if lost := c.why(); lost != nil && ctx.Err() == nil {
			return n > 0, lost
		}
	}
	return n > 0, fmt.Errorf("write to the child: %w", err)
}

// read takes lines until the end of stdout.
func (c *child) read() {
	defer close(c.reads)
	defer c.out.Close()
	r := bufio.NewReaderSize(c.out, 64<<10)
	skipped := newBucket(20, 5)
	for {
		line, tail, err := readLine(r, c.max)
		switch {
		case tail != nil:
			c.tooLong(line, tail)
		case len(bytes.TrimSpace(line)) > 0:
			if bad := c.receive(line); bad != nil {
				if n, ok := skipped.take(time.Now()); ok {
					c.log.Warn("a line on the server's stdout is not JSON-RPC: skipped", "line", c.peer.clean(string(line)), "unreported", n)
				}
				if bytes.Contains(line, []byte(`"jsonrpc"`)) { // not a stray log line
					c.failOnly(bad)
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// keep is how much of the ends of a line that is too long is kept, in bytes.
const keep = 4 << 10

// readLine reads one line of at most max bytes. Of a longer one it returns the
// beginning and the end, and skips the rest.
func readLine(r *bufio.Reader, max int64) (line, tail []byte, err error) {
	over := false
	for {
		b, err := r.ReadSlice('\n')
		if over {
			tail = append(tail, b...)
			if len(tail) > 2*keep {
				tail = append(tail[:0:0], tail[len(tail)-keep:]...)
			}
		} else if line = append(line, b...); int64(len(line)) > max+1 {
			over = true
			tail = bytes.Clone(line[len(line)-min(keep, len(line)):])
			line = bytes.Clone(line[:min(keep, len(line))])
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return line, tail, err
	}
}

// wait reaps the child, kills what is left of its group, and then reports the
// end: after everything that it wrote has been read.
func (c *child) wait(errR *os.File, stderrDone <-chan struct{}) {
	err := c.cmd.Wait()
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	// A process that left the group may hold the pipes open: do not wait for it.
	_ = c.out.SetReadDeadline(time.Now().Add(c.grace))
	_ = errR.SetReadDeadline(time.Now().Add(c.grace))
	<-c.reads
	<-stderrDone
	c.in.Close()
	how := "with status 0"
	if err != nil {
		how = "(" + err.Error() + ")"
	}
	said := ""
	if last := c.stderr.last(); last != "" {
		said = ". It last said: " + last
	}
	c.broken(c.peer.fail("", KindProcess, true, err, "the command %q ended %s%s", c.command, how, said))
	close(c.exited)
}

// die ends the child at once.
func (c *child) die() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }

// shut ends the child: closed stdin first, then SIGTERM, then SIGKILL.
func (c *child) shut(ctx context.Context) {
	// Writers in their turn would block on a child that does not read.
	_ = c.in.SetWriteDeadline(time.Now())
	c.in.Close()
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM} {
		if sig != 0 {
			_ = syscall.Kill(-c.cmd.Process.Pid, sig)
		}
		select {
		case <-c.exited:
			return
		case <-time.After(c.grace):
		case <-ctx.Done():
		}
	}
	c.die()
	<-c.exited
}

// stderrLog drains a child's stderr into the log, a bounded number of bounded
// lines, and keeps the last of them for errors.
type stderrLog struct {
	log  interface{ Info(string, ...any) }
	peer *peer

	mu    sync.Mutex
	lines []string
}

func newStderrLog(log interface{ Info(string, ...any) }, p *peer) *stderrLog {
	return &stderrLog{log: log, peer: p}
}

func (s *stderrLog) drain(r io.Reader) {
	br := bufio.NewReaderSize(r, 4<<10)
	b := newBucket(100, 20)
	for {
		line, more, err := br.ReadLine()
		for more && err == nil { // the rest of a long line
			_, more, err = br.ReadLine()
		}
		if text := s.peer.clean(string(line)); text != "" {
			s.mu.Lock()
			if s.lines = append(s.lines, text); len(s.lines) > 3 {
				s.lines = s.lines[1:]
			}
			s.mu.Unlock()
			if n, ok := b.take(time.Now()); ok {
				s.log.Info("stderr of the server", "line", text, "unreported", n)
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *stderrLog) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, " | ")
}

// bucket lets burst events through at once and rate more per second.
type bucket struct {
	burst, rate, have float64
	at                time.Time
	missed            int
}

func newBucket(burst, rate float64) *bucket { return &bucket{burst: burst, rate: rate, have: burst} }

// take reports whether one more may pass, and how many did not since the last.
func (b *bucket) take(now time.Time) (missed int, ok bool) {
	if !b.at.IsZero() {
		b.have = min(b.burst, b.have+now.Sub(b.at).Seconds()*b.rate)
	}
	b.at = now
	if b.have < 1 {
		b.missed++
		return 0, false
	}
	b.have--
	missed, b.missed = b.missed, 0
	return missed, true
}
