package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// The descriptors a worker is born with.
const (
	fdSocket  = 3
	fdControl = 4
)

// rawFile reads and writes a descriptor without the runtime's poller, which
// could need new descriptors that the limits forbid.
type rawFile int

func (f rawFile) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (f rawFile) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(f), b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// link is the connection to the gateway.
type link struct {
	fd int
	br *bufio.Reader

	// A pipe to itself: the script's goroutine sleeps in the kernel, and an
	// order that arrives elsewhere must end that.
	bellOut, bellIn int

	mu  sync.Mutex
	out []byte
}

func newLink(fd int) *link {
	return &link{fd: fd, br: bufio.NewReaderSize(rawFile(fd), 64<<10), bellOut: -1, bellIn: -1}
}

// openBell makes the pipe for ring, while descriptors can still be had.
func (l *link) openBell() error {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
	}
	l.bellOut, l.bellIn = p[0], p[1]
	return nil
}

// ring ends a ready that waits, now or the next one.
func (l *link) ring() {
	_, _ = unix.Write(l.bellIn, []byte{1}) // a full pipe rings as well
}

// put buffers a frame: calls made in one go leave in one write.
func (l *link) put(k proto.Kind, id uint32, parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = proto.AppendHeader(l.out, k, id, n)
	for _, p := range parts {
		l.out = append(l.out, p...)
	}
	if len(l.out) > 32<<10 {
		l.flushLocked()
	}
}

func (l *link) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *link) flushLocked() {
	if len(l.out) == 0 {
		return
	}
	if _, err := rawFile(l.fd).Write(l.out); err != nil {
		os.Exit(exitGatewayGone)
	}
	if cap(l.out) > 1<<20 {
		l.out = nil
		return
	}
	l.out = l.out[:0]
}

// ready waits up to ms milliseconds for something to read, -1 without end. It
// comes back early when the bell rings.
func (l *link) ready(ms int) bool {
	if l.br.Buffered() > 0 {
		return true
	}
	p := [2]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(l.bellOut), Events: unix.POLLIN}}
	n, err := unix.Poll(p[:], ms)
	if err != nil && err != unix.EINTR {
		fmt.Fprintln(os.Stderr, "wait for the gateway:", err)
		os.Exit(exitGatewayGone)
	}
	if err != nil || n == 0 {
		return false
	}
	if p[1].Revents != 0 {
		var rung [64]byte
		_, _ = unix.Read(l.bellOut, rung[:])
	}
	return p[0].Revents != 0
}

// read reads one frame from the gateway, which is trusted with sizes.
func (l *link) read() (proto.Frame, error) {
	return proto.Read(l.br, func(proto.Kind) int { return 256 << 20 })
}

// control reads orders until the gateway closes the pipe or dies; then so does
// this process, whatever the script is doing.
func control(fd int, obey func(why byte, run uint32)) {
	for {
		var o [proto.OrderLen]byte
		if _, err := io.ReadFull(rawFile(fd), o[:]); err != nil {
			os.Exit(exitGatewayGone)
		}
		obey(proto.DecodeOrder(o))
	}
}

// checkDescriptors refuses a start by hand.
func checkDescriptors() error {
	var st unix.Stat_t
	if err := unix.Fstat(fdSocket, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("descriptor %d is not a socket", fdSocket)
	}
	if err := unix.Fstat(fdControl, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("there is no control pipe")
	}
	return nil
}
