package portal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// namedTest is a test as documents name it: `package.Test…` or, for a part of
// one, `package.Test…/part`.
var namedTest = regexp.MustCompile("`([a-z0-9]+)\\.(Test\\w+)((?:/[^`/]+)*)`")

// Every test that a document names exists, and so do the parts of tests, which
// stand as texts in the files of the package.
func TestCasesNameRealTests(t *testing.T) {
	tests, sources := map[string]bool{}, map[string]string{}
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	goFiles(t, func(path string, src []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		pkg := filepath.Base(filepath.Dir(path))
		sources[pkg] += string(src)
		for _, m := range decl.FindAllStringSubmatch(string(src), -1) {
			tests[pkg+"."+m[1]] = true
		}
	})
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
			named[page]++
			if !tests[m[1]+"."+m[2]] {
				t.Errorf("%s names %s.%s, which does not exist", page, m[1], m[2])
				continue
			}
			for part := range strings.SplitSeq(strings.TrimPrefix(m[3], "/"), "/") {
				if part != "" && !strings.Contains(sources[m[1]], strconv.Quote(part)) {
					t.Errorf("%s names the part %q of %s.%s, which does not exist", page, part, m[1], m[2])
				}
			}
		}
		// What looks like the name of a test but is none is not checked above.
		for _, m := range regexp.MustCompile("`[^` ]*\\.Test[^`]*`").FindAllString(string(text), -1) {
			if !namedTest.MatchString(m) {
				t.Errorf("%s: %s is no name of a test: write `package.Test…` or `package.Test…/part`", page, m)
			}
		}
	}
	if named["docs/cases.md"] < 200 || named["docs/writeguard.md"] == 0 {
		t.Fatalf("tests named in documents: %v", named)
	}
	doc, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	// The rows that the first issue asks for, and all of the areas protocol,
	// lifecycle of upstreams, sandbox, sign-in and policy.
	for _, id := range strings.Fields("B001 B002 B004 B005 B007 B008 B010 B011 B013 B014 B016 B017 B019 B020 B022 B023 B025 B026 B028 B029 B031 B032 B034 B035 B037 B038 B040 B041 B043 B044 B046 B047 B076 B077 B079 B080 B082 B083 B085 B086 B088 B089 B091 B092 B094 B095 B097 B098 B100 B101 B103 B104 B106 B107 B109 B110 B112 B113 B115 B116 B118 B119 B121 B122 B124 B125 B127 B128 B130 B131 B133 B134 B136 B137 B139 B140 B142 B143 B145 B146 B148 B149 B151 B152 B154 B155 B001 B005 B007 B010 B013 B022 B025 B028 B029 B032 B034 B037 B041 B050 B052 B053 B055 B056 B058 B059 B076 B079 B080 B083 B088 B089 B094 B101 B136 B137 B139 B140 B142 B143 B145 B146 B148 B149 B151 B152 B154 B157 B158 B166 B167 B173 B175") {
		if !strings.Contains(string(doc), "| "+id) && !strings.Contains(string(doc), ", "+id) {
			t.Errorf("docs/cases.md lacks %s", id)
		}
	}
}
