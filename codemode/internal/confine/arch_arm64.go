//go:build linux

package confine

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var (
	archAllowed []uint32
	archRefused = []uint32{unix.SYS_FSTATAT}
)
