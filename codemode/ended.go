package codemode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// limitReached is a budget of this side that a script used up.
type limitReached struct{ kind, message string }

func (l *limitReached) Error() string { return l.message }

// ended says why a worker stopped without a last message, in words for the
// model. What looks like an attack goes to the log as well.
func (e *execution) ended(cause error) *ScriptError {
	over := e.over.Load()
	if err := e.caught.Load(); err != nil {
		cause = *err
	}
	killedByUs := e.w.killed.Load()
	e.w.kill()
	select {
	case <-e.w.exited:
	case <-time.After(5 * time.Second):
		return &ScriptError{Kind: kindEngine, Message: "the sandbox worker did not end; the administrator should look at the portal's log"}
	}
	var limit *limitReached
	switch {
	case errors.As(cause, &limit):
		return &ScriptError{Kind: limit.kind, Message: limit.message}
	case errors.Is(cause, proto.ErrProtocol):
		e.pool.log.Warn("a sandbox worker broke the protocol and was ended", "run", e.req.ID, "owner", e.req.Owner, "error", cause)
		return &ScriptError{Kind: kindEngine, Message: "the sandbox worker misbehaved and was ended; simplify the code"}
	case over != nil:
		return &ScriptError{Kind: *over, Message: e.limitText(*over) + ", and the script had to be killed: look for a slow built-in, such as a regular expression or a huge array"}
	}
	stderr := e.w.stderr.String()
	status, _ := e.w.state.Sys().(syscall.WaitStatus)
	has := func(parts ...string) bool {
		for _, s := range parts {
			if strings.Contains(stderr, s) {
				return true
			}
		}
		return false
	}
	switch {
	// The collector dies in tryDrain when a page of its own cannot be had.
	case has("out of memory", "cannot allocate", "tryDrain", "failed to create new OS thread"):
		return &ScriptError{Kind: kindMemory, Message: fmt.Sprintf("the memory limit of %d MB was reached: keep only the fields you need and work page by page", e.lim.MemoryMB)}
	case has("stack exceeds", "stack overflow"):
		return &ScriptError{Kind: kindStack, Message: "too much recursion inside a built-in: the data or the code is nested too deeply"}
	case status.Signaled() && status.Signal() == syscall.SIGSYS:
		e.pool.log.Error("a sandbox worker made a forbidden system call and was killed", "run", e.req.ID, "owner", e.req.Owner)
		return &ScriptError{Kind: kindEngine, Message: "the sandbox worker was ended by the kernel; simplify the code"}
	case status.Signaled() && status.Signal() == syscall.SIGXCPU:
		return &ScriptError{Kind: kindCPU, Message: e.limitText(kindCPU)}
	case status.Signaled() && status.Signal() == syscall.SIGKILL && !killedByUs:
		return &ScriptError{Kind: kindMemory, Message: "the system killed the sandbox worker, most likely for want of memory: use less data at once"}
	case status.Signaled() && status.Signal() == syscall.SIGSEGV, has("SIGSEGV"):
		return &ScriptError{Kind: kindMemory, Message: fmt.Sprintf("the script engine failed, most likely at the memory limit of %d MB", e.lim.MemoryMB)}
	}
	if killedByUs {
		e.pool.log.Debug("a sandbox worker was ended with its run", "run", e.req.ID)
		return &ScriptError{Kind: kindEngine, Message: "the run was ended"}
	}
	e.pool.log.Error("a sandbox worker ended unexpectedly", "run", e.req.ID, "state", e.w.state.String(), "error", cause, "stderr", cutText(stderr, 500))
	return &ScriptError{Kind: kindEngine, Message: "the script engine failed; simplify the code"}
}

// limitText says which limit was met in the words of the worker, had it lived to
// say so itself.
func (e *execution) limitText(kind string) string {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }
	if kind == kindWall {
		return "the time limit of " + seconds(e.lim.Wall) + " was reached"
	}
	return "the processor time limit of " + seconds(e.lim.CPU) + " was reached"
}
