package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"github.com/goccy/go-yaml/ast"
)

// Load reads and checks the configuration file at path, with the variables of
// the process environment. On failure the error is Errors, with everything
// that is wrong at once; there is no partly loaded configuration.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, Errors{{File: path, Message: err.Error()}}
	}
	return Parse(path, data, os.LookupEnv)
}

// readFile reads a regular file of bounded size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration (%w); give its path with --config", cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the configuration is not a regular file; give the path of portal.yaml with --config")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("the configuration has %d bytes, more than the %d allowed; is this the right file?", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration (%w); let the portal's user read it", cause(err))
	}
	return data, nil
}

// Parse reads and checks the text of a configuration file. path is used in
// messages and to resolve relative paths; env looks up ${NAME}. The error is
// Errors. Files named by file:/path secrets are read.
func Parse(path string, data []byte, env func(string) (string, bool)) (*Config, error) {
	c, _, errs := parse(path, data, env)
	if len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// parse does the work of Parse and also returns what was read, with and
// without success, for the watcher.
func parse(path string, data []byte, env func(string) (string, bool)) (*Config, map[string]Secret, Errors) {
	root, errs := syntax(path, data)
	if len(errs) > 0 {
		return nil, map[string]Secret{path: fingerprint(data)}, errs.within(string(data))
	}
	c := Defaults()
	c.Path = path
	d := newDecoder(path, env)
	ast.Walk(collectAnchors{d}, root)
	if _, empty := root.(*ast.NullNode); empty {
		return nil, map[string]Secret{path: fingerprint(data)}, Errors{{File: path, Line: 1, Column: 1, Message: "the file is empty; write at least auth and servers, see docs/configuration.md"}}
	}
	d.sources[path] = fingerprint(data)
	d.decode(root, reflect.ValueOf(c).Elem(), place{}, position{1, 1})
	v := &validator{decoder: d, c: c}
	v.run()
	if len(d.errs) > 0 {
		return nil, d.sources, d.errs.within(string(data)).sorted()
	}
	for _, w := range v.warnings.sorted() {
		c.Warnings = append(c.Warnings, w.Error())
	}
	c.sources, c.places = d.sources, d.values
	derive(c)
	for id, s := range maps.Clone(c.Servers) {
		if s.Dir != "" && !filepath.IsAbs(s.Dir) {
			s.Dir = filepath.Join(filepath.Dir(path), s.Dir)
			c.Servers[id] = s
		}
	}
	return c, d.sources, nil
}

// fingerprint identifies the content of a file without keeping it, since it
// may be a secret.
func fingerprint(data []byte) Secret {
	sum := sha256.Sum256(data)
	return Secret(hex.EncodeToString(sum[:]))
}
