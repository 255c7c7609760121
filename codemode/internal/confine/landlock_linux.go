//go:build linux && (amd64 || arm64)

package confine

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rulesetAttr is struct landlock_ruleset_attr of linux/landlock.h.
type rulesetAttr struct {
	fs     uint64
	net    uint64
	scoped uint64
}

// landlock handles every right the running kernel knows and grants none.
func landlock() error {
	abi, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return fmt.Errorf("the kernel does not offer it: %w", e)
	}
	// Bits by version of the interface: 13 file rights, then refer (2),
	// truncate (3), TCP bind and connect (4), ioctl on devices (5), abstract
	// sockets and signals (6). An older kernel refuses a longer structure.
	attr := rulesetAttr{fs: 1<<13 - 1}
	size := unsafe.Sizeof(attr.fs)
	for _, step := range []struct {
		abi     uintptr
		fs, net uint64
		scoped  uint64
		size    uintptr
	}{
		{abi: 2, fs: 1 << 13, size: 8},
		{abi: 3, fs: 1 << 14, size: 8},
		{abi: 4, net: 3, size: 16},
		{abi: 5, fs: 1 << 15, size: 16},
		{abi: 6, scoped: 3, size: 24},
	} {
		if abi >= step.abi {
			attr.fs |= step.fs
			attr.net |= step.net
			attr.scoped |= step.scoped
			size = step.size
		}
	}
	fd, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return fmt.Errorf("create the rule set: %w", e)
	}
	defer unix.Close(int(fd))
	if _, _, e = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return fmt.Errorf("apply the rule set: %w", e)
	}
	return nil
}
