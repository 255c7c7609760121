package gateway

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Process is what this portal process uses of its machine: what an operator
// watches to see that nothing grows. Figures that the system does not tell are
// zero.
type Process struct {
	PID        int    `json:"pid"`
	Goroutines int    `json:"goroutines"`
	Threads    int    `json:"threads"`
	Files      int    `json:"open_files"`          // descriptors: connections, pipes, files
	Children   int    `json:"children"`            // stdio servers, sandbox workers
	HeapLive   uint64 `json:"heap_live_bytes"`     // what the last garbage collection left
	Memory     uint64 `json:"memory_bytes"`        // taken from the system by Go, less what was given back
	Resident   uint64 `json:"resident_bytes"`      // as the system counts it
	Collected  uint64 `json:"garbage_collections"` // since start
}

func readProcess() Process {
	p := Process{PID: os.Getpid(), Goroutines: runtime.NumGoroutine()}
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	p.HeapLive, p.Memory, p.Collected = s[0].Value.Uint64(), s[1].Value.Uint64()-s[2].Value.Uint64(), s[3].Value.Uint64()
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.Files = len(fds) - 1 // less that of the listing
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return p
	}
	p.Threads = len(tasks)
	for _, t := range tasks {
		if b, err := os.ReadFile("/proc/self/task/" + t.Name() + "/children"); err == nil {
			p.Children += len(strings.Fields(string(b)))
		}
	}
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			p.Resident = n * uint64(os.Getpagesize())
		}
	}
	return p
}
