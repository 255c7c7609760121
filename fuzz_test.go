package portal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every decoder of what comes from outside has a fuzz target with a kept
// corpus, which go test runs as ordinary cases.
func TestDecodersKeepTheirCorpus(t *testing.T) {
	found := map[string]bool{}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range target.FindAllSubmatch(src, -1) {
				found[filepath.Dir(path)+"/"+string(m[1])] = true
			}
		}
	})
	for _, want := range []string{
		"wire/FuzzParseMessage", "wire/FuzzParseObject", "wire/FuzzSetMeta", "wire/FuzzSplitBatch", "wire/FuzzEventReader", "wire/FuzzHeaderValue", "wire/FuzzDecodeHeaderValue",
		"upstreams/FuzzReadLine", "registry/FuzzNamesAreInjective", "registry/FuzzBareNamesAreInjective", "registry/FuzzIdentifier", "registry/FuzzOuter", "registry/FuzzDecodeCatalogue",
		"codemode/internal/proto/FuzzRead", "codemode/internal/proto/FuzzDecode", "auth/FuzzBearer", "auth/FuzzHostAndOrigin",
	} {
		if !found[want] {
			t.Errorf("there is no target %s", want)
		}
		dir, name := filepath.Split(want)
		kept, err := os.ReadDir(filepath.Join(dir, "testdata", "fuzz", name))
		if err != nil || len(kept) < 8 {
			t.Errorf("%s keeps %d inputs: %v", want, len(kept), err)
		}
	}
}
