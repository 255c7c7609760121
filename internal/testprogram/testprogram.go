// Package testprogram builds the programs that tests run: the portal itself
// and, since sandbox workers are the same binary, what tests of the sandbox
// need.
package testprogram

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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

// Depend makes a test depend on the sources of the module. What go test keeps
// of a passed test holds as long as the test's own binary and the files that it
// opened while tests ran are the same: of a program that go build made for it,
// it knows nothing, and would call a test passed that a change of the program
// has broken. So whoever starts such a program in a test calls this first.
func Depend(t testing.TB) {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
}

// lookAtSources opens the folders of the module, once: that is enough.
var lookAtSources = sync.OnceValue(func() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			return errors.New("no go.mod above the folder of the test")
		}
		root = filepath.Dir(root)
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "docs" || name == "testdata") {
			return filepath.SkipDir
		}
		return nil
	})
})

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
