//go:build linux

package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var (
	archAllowed = []uint32{unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL}
	archRefused = []uint32{unix.SYS_READLINK, unix.SYS_NEWFSTATAT, unix.SYS_GETRLIMIT}
)
