// Package policytest runs tables of tests for a policy: files that say which
// calls come to which decision. It judges by the same code as the portal and
// calls nothing.
package policytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// File is a table of tests.
type File struct {
	Path   string          `yaml:"-"`
	Config string          `yaml:"config"` // the configuration to test, relative to the file; default portal.yaml
	Users  map[string]User `yaml:"users"`  // by a name that tests use
	Tests  []Test          `yaml:"tests"`
}

// User is who calls.
type User struct {
	ID     string   `yaml:"id"` // principal id; default the e-mail address; svc:… is a machine
	Email  string   `yaml:"email"`
	Name   string   `yaml:"name"`
	Groups []string `yaml:"groups"`
}

// Test is one call with the decision that it must come to.
type Test struct {
	Name        string         `yaml:"name"`
	Server      string         `yaml:"server"`
	Tool        string         `yaml:"tool"` // original name
	Description string         `yaml:"description"`
	Annotations map[string]any `yaml:"annotations"`
	Arguments   map[string]any `yaml:"arguments"` // default {}
	User        string         `yaml:"user"`      // a name under users; default a person in no group
	Client      string         `yaml:"client"`    // name/version
	Mode        Modes          `yaml:"mode"`      // direct (default), code, or a list of both
	Run         Run            `yaml:"run"`

	Expect string `yaml:"expect"` // allow, deny, approve, plan
	Rule   string `yaml:"rule"`   // that decides; empty: any
	Class  string `yaml:"class"`  // of the tool; empty: any
	Reason string `yaml:"reason"` // a part of it; empty: any

	Line int `yaml:"-"`
}

// Run is what happened before the call.
type Run struct {
	Calls     int      `yaml:"calls"`
	ToolCalls int      `yaml:"tool_calls"`
	Taints    []string `yaml:"taints"` // private, untrusted
}

// Modes are one mode or several.
type Modes []string

// UnmarshalYAML reads a word or a list of words.
func (m *Modes) UnmarshalYAML(b []byte) error {
	var one string
	if yaml.Unmarshal(b, &one) == nil {
		*m = Modes{one}
		return nil
	}
	return yaml.Unmarshal(b, (*[]string)(m))
}

// Failure is a test that came out otherwise, or one that cannot be run.
type Failure struct {
	File    string
	Line    int
	Test    string // empty: the file as a whole
	Message string
}

// Error is "file:line: test: message".
func (f Failure) Error() string {
	at := f.File
	if f.Line > 0 {
		at += fmt.Sprintf(":%d", f.Line)
	}
	if f.Test != "" {
		at += ": " + f.Test
	}
	return at + ": " + f.Message
}

// fileMost bounds a file of tests, in bytes.
const fileMost = 4 << 20

// Read reads a file of tests. The error is a Failure with the line of what is
// wrong.
func Read(path string) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read policy tests: %w", err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, fileMost+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read policy tests: %w", err)
	case len(data) > fileMost:
		return nil, Failure{File: path, Message: fmt.Sprintf("the file is larger than %d bytes; is this the right file?", fileMost)}
	}
	return Parse(path, data)
}

// Parse is Read for text that was read already.
func Parse(path string, data []byte) (*File, error) {
	f := &File{Path: path, Config: "portal.yaml"}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, located(path, err)
	}
	if len(f.Tests) == 0 {
		return nil, Failure{File: path, Line: 1, Message: "it has no tests; write a list under tests, see docs/writeguard.md"}
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, located(path, err)
	}
	for i := range f.Tests {
		f.Tests[i].Line = lineOf(tree, i)
	}
	return f, nil
}

func located(path string, err error) error {
	var y yaml.Error
	if !errors.As(err, &y) {
		return Failure{File: path, Message: err.Error()}
	}
	f := Failure{File: path, Message: y.GetMessage()}
	if tk := y.GetToken(); tk != nil && tk.Position != nil {
		f.Line = tk.Position.Line
	}
	return f
}

// lineOf is where a test begins.
func lineOf(tree *ast.File, i int) int {
	p, err := yaml.PathString(fmt.Sprintf("$.tests[%d]", i))
	if err != nil {
		return 0
	}
	n, err := p.FilterFile(tree)
	if err != nil || n == nil {
		return 0
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 { // its own token is that of the first colon
		return m.Values[0].Key.GetToken().Position.Line
	}
	return n.GetToken().Position.Line
}

// ConfigPath is the configuration that the file is about.
func (f *File) ConfigPath() string {
	if filepath.IsAbs(f.Config) {
		return f.Config
	}
	return filepath.Join(filepath.Dir(f.Path), f.Config)
}

// Run judges every test and returns those that fail, in order, and how many
// calls were judged.
func (f *File) Run(cfg *config.Config, policy *writeguard.Policy) (failed []Failure, calls int) {
	for i, t := range f.Tests {
		name := t.Name
		if name == "" {
			name = fmt.Sprintf("test %d", i+1)
		}
		fail := func(format string, a ...any) {
			failed = append(failed, Failure{f.Path, t.Line, name, fmt.Sprintf(format, a...)})
		}
		modes := t.Mode
		if len(modes) == 0 {
			modes = Modes{string(writeguard.Direct)}
		}
		for _, mode := range modes {
			calls++
			c, err := f.call(t, mode, cfg)
			if err != nil {
				fail("%v", err)
				break
			}
			for _, wrong := range t.judge(policy.Decide(c)) {
				if len(modes) > 1 {
					wrong = "mode " + mode + ": " + wrong
				}
				fail("%s", wrong)
			}
		}
	}
	return failed, calls
}

// call is what the guard judges in a test.
func (f *File) call(t Test, mode string, cfg *config.Config) (writeguard.Call, error) {
	var none writeguard.Call
	if _, ok := cfg.Servers[t.Server]; !ok {
		return none, fmt.Errorf("server %q is not in %s", t.Server, cfg.Path)
	}
	if t.Tool == "" {
		return none, errors.New("tool is missing")
	}
	if !slices.Contains([]string{"allow", "deny", "approve", "plan"}, t.Expect) {
		return none, fmt.Errorf("expect: %q is none of allow, deny, approve, plan", t.Expect)
	}
	if mode != string(writeguard.Direct) && mode != string(writeguard.Code) {
		return none, fmt.Errorf("mode: %q is none of direct, code", mode)
	}
	who := User{ID: "somebody"}
	if t.User != "" {
		var ok bool
		if who, ok = f.Users[t.User]; !ok {
			return none, fmt.Errorf("user: there is no %q under users", t.User)
		}
	}
	taints, err := writeguard.ParseLabels(t.Run.Taints)
	if err != nil {
		return none, fmt.Errorf("run.taints: %w", err)
	}
	p := &auth.Principal{ID: who.ID, Kind: auth.KindUser, Name: who.Name, Email: who.Email, Groups: who.Groups}
	if p.ID == "" {
		p.ID = who.Email
	}
	if strings.HasPrefix(p.ID, "svc:") {
		p.Kind = auth.KindService
	}
	c := writeguard.Call{Principal: p, Client: t.Client, Mode: writeguard.Mode(mode), Server: t.Server, Tool: t.Tool, Description: t.Description, Arguments: json.RawMessage("{}"),
		Facts: func() (writeguard.Facts, error) {
			return writeguard.Facts{Calls: t.Run.Calls, ToolCalls: t.Run.ToolCalls, Taints: taints}, nil
		}}
	if mode == string(writeguard.Code) {
		c.Run = "run_test"
	}
	for _, x := range []struct {
		what string
		from map[string]any
		to   *json.RawMessage
	}{{"arguments", t.Arguments, &c.Arguments}, {"annotations", t.Annotations, &c.Annotations}} {
		if x.from == nil {
			continue
		}
		if *x.to, err = json.Marshal(x.from); err != nil {
			return none, fmt.Errorf("%s cannot be written as JSON: %w", x.what, err)
		}
	}
	return c, nil
}

// judge says what a decision has that the test does not want.
func (t Test) judge(d writeguard.Decision) (wrong []string) {
	got := d.Action
	if d.Would != "" { // what counts is the policy, not that it only observes
		got = d.Would
	}
	if string(got) != t.Expect {
		wrong = append(wrong, fmt.Sprintf("decided %s by %s (class %s), want %s. %s", got, d.Rule, d.Class, t.Expect, d.Reason))
	}
	if t.Rule != "" && t.Rule != d.Rule {
		wrong = append(wrong, fmt.Sprintf("decided by %s, want rule %s", d.Rule, t.Rule))
	}
	if t.Class != "" && t.Class != string(d.Class) {
		wrong = append(wrong, fmt.Sprintf("class %s (%s), want %s", d.Class, d.Why, t.Class))
	}
	if t.Reason != "" && !strings.Contains(d.Reason, t.Reason) {
		wrong = append(wrong, fmt.Sprintf("the reason %q does not say %q", d.Reason, t.Reason))
	}
	return wrong
}
