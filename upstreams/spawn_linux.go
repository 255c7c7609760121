package upstreams

import (
	"context"
	"os/exec"
	"runtime"
	"syscall"
)

// childAttributes put a child into a process group of its own and end it with
// the portal, even when that is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// newSpawner returns what starts children, all from one thread that lives
// until ctx ends: the kernel sends a child its parent's death signal already
// when the thread that started it ends, and threads of the Go runtime may.
func newSpawner(ctx context.Context) func(*exec.Cmd) error {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case f := <-work:
				f()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func(cmd *exec.Cmd) error {
		done := make(chan error, 1)
		select {
		case work <- func() { done <- cmd.Start() }:
			return <-done
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
