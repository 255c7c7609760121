//go:build linux && (amd64 || arm64)

package confine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Apply sets every layer it can, in the order in which each still may set the
// next, and reports all of them. It is called once, by a process that already
// holds the descriptors it will ever need.
func Apply(o Options) []proto.Layer {
	var out []proto.Layer
	out = append(out, user(), layer(LayerEnv, environment(o.Env)), layer(LayerFiles, descriptors(o.Given)), layer(LayerDeath, parentDeath()))
	// The kernel's out-of-memory killer must choose the worker, not the gateway.
	out = append(out, layer(LayerOOM, os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)))
	out = append(out, layer(LayerNice, nice(o.Nice)))
	out = append(out, layer(LayerDumpable, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)))
	if withCgo {
		err := errors.New("built with cgo: build the program with CGO_ENABLED=0")
		return append(out, layer(LayerRlimits, rlimits(o)), layer(LayerNoPrivs, err), layer(LayerLandlock, err), layer(LayerSeccomp, err))
	}
	nnp := noNewPrivs()
	out = append(out, layer(LayerNoPrivs, nnp))
	if nnp != nil {
		err := fmt.Errorf("needs %s: %w", LayerNoPrivs, nnp)
		return append(out, layer(LayerRlimits, rlimits(o)), layer(LayerLandlock, err), layer(LayerSeccomp, err))
	}
	// Landlock needs one new descriptor, so it comes before the file limit.
	out = append(out, layer(LayerLandlock, landlock()))
	out = append(out, layer(LayerRlimits, rlimits(o)))
	return append(out, layer(LayerSeccomp, seccomp())) // last: it forbids all of the above
}

func user() proto.Layer {
	uid := os.Getuid()
	if uid == 0 {
		return proto.Layer{Name: LayerUser, Detail: "runs as root"}
	}
	return proto.Layer{Name: LayerUser, OK: true, Detail: strconv.Itoa(uid)}
}

// environment is an error if there are variables beside those given.
func environment(given []string) error {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains(given, name) {
			return fmt.Errorf("the variable %.40q was inherited", name)
		}
	}
	return nil
}

// descriptors closes what was inherited beside the standard ones and those
// given: whoever started the portal may have left files open, and a child gets
// those too. The runtime's own are anonymous.
func descriptors(given []int) error {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the open descriptors: %w", err)
	}
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || slices.Contains(given, fd) {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") {
			continue // the one that listed them is closed by now
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close the inherited descriptor %d (%.60s): %w", fd, target, err)
		}
	}
	return nil
}

func parentDeath() error {
	var sig int32
	if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0); err != nil {
		return err
	}
	if sig != int32(unix.SIGKILL) {
		return errors.New("no signal at the death of the parent is set")
	}
	return nil
}

func rlimits(o Options) error {
	for _, l := range []struct {
		name string
		res  int
		max  uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"fsize", unix.RLIMIT_FSIZE, 0},
		{"memlock", unix.RLIMIT_MEMLOCK, 0},
		{"cpu", unix.RLIMIT_CPU, o.CPUSeconds},
		// Two, not zero: poll(2) refuses more descriptors than the limit, and a
		// worker waits for two. Open ones stay usable, and no new one gets a
		// number below two while those are open.
		{"nofile", unix.RLIMIT_NOFILE, 2},
		{"data", unix.RLIMIT_DATA, o.DataBytes},
	} {
		if withRace && l.res == unix.RLIMIT_DATA {
			return errors.New("built with the race detector: memory is not limited by the kernel")
		}
		if err := unix.Setrlimit(l.res, &unix.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return fmt.Errorf("set limit %s to %d: %w", l.name, l.max, err)
		}
	}
	return nil
}

func noNewPrivs() error {
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// nice gives way to others, at least so much: a portal that was started with
// more must not take it back.
func nice(n int) error {
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && 20-now >= n { // the kernel counts from 20 down
		return nil
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, n)
}
