// Package corpora finds the team's shared test data (real tool lists,
// retrieval sets), which lie beside the checkout and are not part of it. Only
// tests import it.
package corpora

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file or folder below shared/corpora beside the
// checkout. A clone elsewhere does not have them: its test is skipped, saying
// so. CI has them, and there it is a failure.
func Path(t testing.TB, parts ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
	root := filepath.Join(filepath.Dir(dir), "shared", "corpora")
	if _, err := os.Stat(root); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the shared corpora are missing beside the checkout: %v", err)
		}
		t.Skip("the team's shared corpora are not beside this checkout; CI has them")
	}
	return filepath.Join(append([]string{root}, parts...)...)
}
