package upstreams

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// alive reports whether a process runs: zombies that nobody reaped count.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil || syscall.Kill(n, 0) != nil {
		return false
	}
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
