// Package testprogram builds the programs that tests run: the portal itself
// and, since sandbox workers are the same binary, what tests of the sandbox
// need.
package testprogram

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds main packages as releases are built, without cgo, into a new
// folder that every user may read: workers started by root run as somebody
// else. It is for TestMain: the caller removes the folder when its tests are
// over, and nothing is left of it after an error.
func Build(packages ...string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "mcp-portal-test-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", dir + string(filepath.Separator)}, packages...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %v: %w\n%s", packages, err, out)
	}
	return dir, nil
}

// Main is TestMain for tests that need programs: it builds them, tells set
// their folder, runs the tests and returns the exit code.
func Main(run func() int, set func(dir string), packages ...string) int {
	dir, err := Build(packages...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	set(dir)
	return run()
}
