package portal_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What docs/architecture.md says of the tree is so: the files it names exist,
// it names every folder with Go code at the top, and its dependencies are those
// of go.mod.
func TestArchitectureIsOfThisTree(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page := read("docs/architecture.md")
	section := func(title string) string {
		t.Helper()
		_, rest, found := strings.Cut(page, "\n## "+title+"\n")
		if !found {
			t.Fatalf("there is no section %q", title)
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
		return rest
	}

	files := 0
	for _, m := range regexp.MustCompile("`([a-z0-9_-]+(?:/[a-z0-9_.-]+)+|[a-z_]+\\.go)`").FindAllStringSubmatch(page, -1) {
		files++
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("the page names %s, which does not exist", m[1])
		}
	}
	if files < 10 {
		t.Fatalf("only %d files are named", files)
	}

	table, top := section("Rooms"), map[string]bool{}
	goFiles(t, func(path string, _ []byte) {
		if dir, _, inside := strings.Cut(filepath.ToSlash(path), "/"); inside {
			top[dir] = true
		}
	})
	for dir := range top {
		if !strings.Contains(table, "`"+dir+"`") && !strings.Contains(table, "`"+dir+"/") {
			t.Errorf("the folder %s is in no row of the rooms", dir)
		}
	}

	table = section("Dependencies")
	direct, _, _ := strings.Cut(read("go.mod"), "\n)")
	version := regexp.MustCompile(`/v\d+$`)
	required := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(direct, -1) {
		name := path.Base(version.ReplaceAllString(m[1], ""))
		required[name] = true
		if !regexp.MustCompile(`(?m)^\|[^|]*\b` + regexp.QuoteMeta(name) + `\b[^|]*\|`).MatchString(table) {
			t.Errorf("go.mod requires %s, and the page does not say what for", m[1])
		}
	}
	if len(required) < 15 {
		t.Fatalf("only %d modules found", len(required))
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if base := path.Base(name); name != "module" && !strings.HasPrefix(name, "-") && !required[base] {
				t.Errorf("the page names the module %s, which go.mod does not require", name)
			}
		}
	}
}
