//go:build !linux

package upstreams

import (
	"context"
	"os/exec"
	"syscall"
)

// childAttributes put a child into a process group of its own. It learns of
// the portal's sudden death by the end of its standard input only.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func newSpawner(context.Context) func(*exec.Cmd) error { return (*exec.Cmd).Start }
