package codemode

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultExecutable is this program, even when its file was replaced or lies
// in a directory that the worker's user may not enter.
func defaultExecutable() (string, error) { return "/proc/self/exe", nil }

// nobody is the user and group of workers when the portal runs as root.
const nobody = 65534

func processAttributes(dropRoot bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if dropRoot {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// cpuTime is the processor time a process has used; ok is false when it is gone.
func cpuTime(pid int) (d time.Duration, ok bool) {
	// CPUCLOCK_SCHED of another process, as clock_getcpuclockid(3) makes it.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

const platformLayers = true
