// Package portal_test holds tests about the shape of the whole tree.
package portal_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mcp-portal/mcp-portal/"

// rooms from top to bottom: none may import one above it.
var rooms = []string{"cmd/mcp-portal", "gateway", "codemode", "writeguard", "registry", "upstreams", "auth", "audit", "wire", "store", "config"}

func room(path string) (string, int) {
	for i, r := range rooms {
		if path == r || strings.HasPrefix(path, r+"/") {
			return r, i
		}
	}
	return "", -1
}

func goFiles(t *testing.T, f func(path string, src []byte)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		f(filepath.ToSlash(path), src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Fatalf("only %d Go files found: the walk is broken", n)
	}
}

func TestRoomsImportOnlyDownwards(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		from, level := room(filepath.ToSlash(filepath.Dir(path)))
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly)
		if err != nil {
			t.Fatalf("parse %s: %v", path, err)
		}
		for _, imp := range file.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			inside, ok := strings.CutPrefix(name, module)
			if !ok {
				continue
			}
			to, lower := room(inside)
			switch {
			case strings.HasPrefix(path, "examples/") && to != "":
				t.Errorf("%s imports %s: the example servers know nothing of the portal", path, inside)
			case strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "e2e/"):
				// Tests may look at everything.
			case from != "" && to != "" && lower < level:
				t.Errorf("%s (%s) imports %s, which is above it", path, from, inside)
			}
		}
	})
}

// Credentials stay where they are needed.
func TestOnlyAFewRoomsRevealSecrets(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		from, _ := room(filepath.ToSlash(filepath.Dir(path)))
		if strings.Contains(string(src), ".Reveal()") && from != "auth" && from != "upstreams" && from != "store" && from != "config" {
			t.Errorf("%s reveals a secret: only auth, upstreams and store may", path)
		}
	})
}

// There is one door: nothing else sends to an upstream for a client.
func TestOnlyTheDoorSendsToUpstreams(t *testing.T) {
	n := 0
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "upstreams/") || strings.HasPrefix(path, "wire/") {
			return
		}
		if c := strings.Count(string(src), ".Do(ctx, c)"); c > 0 || strings.Contains(string(src), "upstreams.Call{") {
			n += c
			if path != "gateway/door.go" {
				t.Errorf("%s sends to an upstream: only gateway/door.go may", path)
			}
		}
	})
	if n != 1 {
		t.Errorf("the door sends in %d places, want 1", n)
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	dirs := map[string]bool{}
	docs := map[string]bool{}
	goFiles(t, func(path string, src []byte) {
		dir := filepath.Dir(path)
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dirs[dir] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments|parser.PackageClauseOnly)
		if err == nil && file.Doc != nil {
			docs[dir] = true
		}
	})
	for d := range dirs {
		if !docs[d] {
			t.Errorf("package in %s has no package comment", d)
		}
	}
}

// The map of files that a package draws in its doc.go is of files that exist.
func TestMapsOfPackagesAreOfRealFiles(t *testing.T) {
	entry := regexp.MustCompile(`(?m)^//\t([a-z0-9_]+\.(?:go|js)) `)
	maps := 0
	goFiles(t, func(path string, src []byte) {
		if filepath.Base(path) != "doc.go" {
			return
		}
		for _, m := range entry.FindAllSubmatch(src, -1) {
			maps++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	})
	if maps < 150 {
		t.Fatalf("only %d files are named", maps)
	}
}
