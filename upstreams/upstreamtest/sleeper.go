package upstreamtest

import (
	"os"
	"os/exec"
)

// spawnSleeper starts a grandchild that would live for long and holds the
// child's pipes open.
func spawnSleeper() error {
	cmd := exec.Command("sleep", "600")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Start()
}
