//go:build unix && !linux

package codemode

import (
	"os"
	"syscall"
	"time"
)

func defaultExecutable() (string, error) { return os.Executable() }

const nobody = 65534

func processAttributes(dropRoot bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if dropRoot {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// cpuTime of another process is not available here: the worker's own watchdog
// and the wall clock remain.
func cpuTime(int) (time.Duration, bool) { return 0, false }

const platformLayers = false
