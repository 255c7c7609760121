package portal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/cases.md names exists.
func TestCasesNameRealTests(t *testing.T) {
	doc, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	goFiles(t, func(path string, src []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, m := range decl.FindAllStringSubmatch(string(src), -1) {
			tests[filepath.Base(filepath.Dir(path))+"."+m[1]] = true
		}
	})
	named := regexp.MustCompile("`([a-z0-9]+\\.Test\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	guard, err := os.ReadFile("docs/writeguard.md") // its threat model names tests, too
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range append(named, regexp.MustCompile("`([a-z0-9]+\\.Test\\w+)`").FindAllStringSubmatch(string(guard), -1)...) {
		if !tests[m[1]] {
			t.Errorf("docs/cases.md or docs/writeguard.md names %s, which does not exist", m[1])
		}
	}
	// The rows that the first issue asks for.
	for _, id := range strings.Fields("B001 B005 B007 B010 B013 B022 B025 B028 B029 B032 B034 B037 B041 B050 B052 B053 B055 B056 B058 B059 B076 B079 B080 B083 B088 B089 B094 B101 B136 B137 B139 B140 B142 B143 B145 B146 B148 B149 B151 B152 B154 B157 B158 B166 B167 B173 B175") {
		if !strings.Contains(string(doc), "| "+id) && !strings.Contains(string(doc), ", "+id) {
			t.Errorf("docs/cases.md lacks %s", id)
		}
	}
}
