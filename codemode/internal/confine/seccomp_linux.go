//go:build linux && (amd64 || arm64)

package confine

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowed is what a running Go program with ready-made descriptors needs.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_PPOLL,
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE,
	unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRUSAGE,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2,
	unix.SYS_GETRANDOM, unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// refused is what the Go runtime may try and can live without: it gets EPERM
// where everything else is killed.
var refused = []uint32{
	unix.SYS_OPENAT, unix.SYS_READLINKAT, unix.SYS_FSTAT, unix.SYS_FCNTL, unix.SYS_IOCTL,
	unix.SYS_PRLIMIT64, unix.SYS_PRCTL, unix.SYS_UNAME, unix.SYS_PIPE2,
}

const (
	verdictAllow = 0x7fff0000 // SECCOMP_RET_ALLOW
	verdictErrno = 0x00050000 // SECCOMP_RET_ERRNO
	verdictKill  = 0x80000000 // SECCOMP_RET_KILL_PROCESS

	// offsets in struct seccomp_data
	offNumber = 0
	offArch   = 4
	offArg0   = 16
)

// filter assembles the program. A jump counts instructions to skip.
type filter []unix.SockFilter

func (f *filter) load(offset uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (f *filter) jump(test uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: yes, Jf: no})
}

func (f *filter) verdict(v uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v})
}

func (f *filter) rule(number, v uint32) {
	f.jump(unix.BPF_JEQ, number, 0, 1)
	f.verdict(v)
}

// guarded allows a call when a test of its first argument holds.
func (f *filter) guarded(number uint32, test uint16, k uint32) {
	f.jump(unix.BPF_JEQ, number, 0, 4)
	f.load(offArg0)
	f.jump(test, k, 0, 1)
	f.verdict(verdictAllow)
	f.verdict(verdictErrno | uint32(unix.EPERM))
}

func program() filter {
	var f filter
	f.load(offArch)
	f.jump(unix.BPF_JEQ, auditArch, 1, 0)
	f.verdict(verdictKill)
	f.load(offNumber)
	for _, n := range append(allowed[:len(allowed):len(allowed)], archAllowed...) {
		f.rule(n, verdictAllow)
	}
	for _, n := range append(refused[:len(refused):len(refused)], archRefused...) {
		f.rule(n, verdictErrno|uint32(unix.EPERM))
	}
	f.rule(unix.SYS_CLONE3, verdictErrno|uint32(unix.ENOSYS))
	f.guarded(unix.SYS_CLONE, unix.BPF_JSET, unix.CLONE_THREAD)   // threads, never processes
	f.guarded(unix.SYS_TGKILL, unix.BPF_JEQ, uint32(os.Getpid())) // the runtime's preemption signals
	f.verdict(verdictKill)
	return f
}

func seccomp() error {
	p := program()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return e
	}
	return nil
}
