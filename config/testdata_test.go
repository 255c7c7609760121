package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoodFiles loads every testdata/*.good.yaml.
func TestGoodFiles(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("testdata", "*.good.yaml"))
	if len(files) < 10 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(filepath.Base(file), text, noEnv); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestBadFiles compares the errors of every testdata/*.bad.yaml with the .want
// file beside it. Each file breaks one rule.
func TestBadFiles(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("testdata", "*.bad.yaml"))
	if len(files) < 80 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".bad.yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(filepath.Base(file), text, noEnv)
			if err == nil || c != nil {
				t.Fatalf("%s was accepted", file)
			}
			if strings.Contains(err.Error(), "planted-secret") {
				t.Errorf("a secret is in the error: %v", err)
			}
			checkPositions(t, text, err)
			if *update {
				if err := os.WriteFile(file+".want", []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, readErr := os.ReadFile(file + ".want")
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// checkPositions wants each error to point into the file and to say what to do.
func checkPositions(t *testing.T, text []byte, err error) {
	t.Helper()
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("the error is %T", err)
	}
	lines := strings.Split(string(text), "\n")
	for _, e := range errs {
		if e.Line < 1 || e.Line > len(lines) {
			t.Errorf("line %d of %d: %v", e.Line, len(lines), e)
			continue
		}
		if n := len([]rune(strings.TrimSuffix(lines[e.Line-1], "\r"))); e.Column < 1 || e.Column > n+1 {
			t.Errorf("column %d of %d: %v", e.Column, n, e)
		}
		if strings.Contains(e.Message, "\n") || !strings.ContainsAny(e.Message, ";?") {
			t.Errorf("a message is one line and says what to do: %v", e)
		}
	}
}
