// Package confine locks the calling process down for good: resource limits, no
// new privileges, Landlock and a seccomp filter on every thread. It is pure Go
// and needs a binary built with CGO_ENABLED=0; in any other it reports the
// layers it could not set instead of guessing.
//
//	Apply ─┬─ rlimits       memory, files, core, cpu
//	       ├─ no_new_privs  on all threads
//	       ├─ landlock      no file system, no TCP, no signals out
//	       └─ seccomp       list of allowed system calls; anything else kills
package confine

import "github.com/mcp-portal/mcp-portal/codemode/internal/proto"

// Options are the limits of the process.
type Options struct {
	DataBytes  uint64 // private writable memory (RLIMIT_DATA)
	CPUSeconds uint64 // of the whole process; a backstop
	Nice       int
	Given      []int    // descriptors above 2 that the process was given, or made itself
	Env        []string // names of variables it was given
}

// Names of the layers that an administrator can require.
const (
	LayerRlimits  = "rlimits"
	LayerNoPrivs  = "no_new_privs"
	LayerLandlock = "landlock"
	LayerSeccomp  = "seccomp"
	LayerUser     = "uid"
	LayerOOM      = "oom"
	LayerDumpable = "dumpable"
	LayerNice     = "nice"
	LayerDeath    = "parent_death" // ended by the kernel with the process that started it
	LayerEnv      = "environment"  // none of the starter's
	LayerFiles    = "descriptors"  // none inherited but those it was given
)

// Layers are the names that Apply reports on Linux.
func Layers() []string {
	return []string{LayerSeccomp, LayerLandlock, LayerRlimits, LayerNoPrivs, LayerUser, LayerOOM, LayerDumpable, LayerNice, LayerDeath, LayerEnv, LayerFiles}
}

func layer(name string, err error) proto.Layer {
	if err != nil {
		return proto.Layer{Name: name, Detail: err.Error()}
	}
	return proto.Layer{Name: name, OK: true}
}
