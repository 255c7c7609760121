package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func mustParse(t *testing.T, text string, vars map[string]string) *Config {
	t.Helper()
	c, err := Parse(filepath.Join(t.TempDir(), "portal.yaml"), []byte(text), env(vars))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// TestEveryKeyRejectsTypos covers B173 at every level: each key of each
// section, written with one letter too many, is an error at its place that
// names the right key.
func TestEveryKeyRejectsTypos(t *testing.T) {
	for _, f := range Fields() {
		key := f.Path[strings.LastIndex(f.Path, ".")+1:]
		text, line, column := nest(f.section(), key+key[len(key)-1:]+": x")
		_, err := Parse("portal.yaml", []byte(text), noEnv)
		want := fmt.Sprintf("portal.yaml:%d:%d: ", line, column)
		hint := fmt.Sprintf("unknown key %q; did you mean %q?", key+key[len(key)-1:], key)
		if err == nil || !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(l string) bool {
			return strings.HasPrefix(l, want) && strings.HasSuffix(l, hint)
		}) {
			t.Errorf("%s: want %s… %s, got\n%v\nfor\n%s", f.Path, want, hint, err, text)
		}
	}
}

// TestEveryKeyRejectsWrongTypes gives each key the values of other types.
func TestEveryKeyRejectsWrongTypes(t *testing.T) {
	values := map[string]string{
		"text": "some text", "number": "5", "boolean": "true", "list": "[[a]]", "map": "{zzz: {}}", "null in a list": "[null]", "yes": "yes", "quoted boolean": `"true"`, "quoted number": `"5"`,
	}
	for _, f := range Fields() {
		var fits []string
		switch {
		case f.Type == "section" || strings.HasPrefix(f.Type, "map"):
			if strings.HasPrefix(f.Type, "map") && f.Path != "servers" {
				fits = []string{"map"}
			}
		case strings.HasPrefix(f.Type, "list"):
		case f.Type == "boolean":
			fits = []string{"boolean"}
		case f.Type == "number":
			fits = []string{"number"}
		case f.Type == "text" || f.Type == "secret":
			fits = []string{"text", "yes", "quoted boolean", "quoted number"}
		}
		for name, value := range values {
			if slices.Contains(fits, name) {
				continue
			}
			key := f.Path[strings.LastIndex(f.Path, ".")+1:]
			text, line, _ := nest(f.section(), key+": "+value)
			_, err := Parse("portal.yaml", []byte(text), noEnv)
			if err == nil || !strings.Contains("\n"+err.Error(), fmt.Sprintf("\nportal.yaml:%d:", line)) {
				t.Errorf("%s: %s as %s was not refused on line %d: %v", f.Path, value, f.Type, line, err)
			}
		}
	}
}

// nest writes a file in which a line stands in a section, and returns where.
func nest(section, line string) (text string, row, column int) {
	indent := ""
	var b strings.Builder
	row = 1
	if section != "" {
		for _, part := range strings.Split(section, ".") {
			name, list := strings.CutSuffix(part, "[]")
			if name == "*" {
				name = "some-name"
			}
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
			indent += "  "
			row++
			if list {
				fmt.Fprintf(&b, "%s-\n", indent)
				indent += "  "
				row++
			}
		}
	}
	return b.String() + indent + line + "\n", row, len(indent) + 1
}

// TestSubstitution covers B175.
func TestSubstitution(t *testing.T) {
	vars := map[string]string{"A": "one", "B_2": "t w$o ${A}", "EMPTY": "", "_x": "u"}
	for in, want := range map[string]string{
		"p$a$$w0rd":         "p$a$$w0rd",
		"$2y$10$abcdefghij": "$2y$10$abcdefghij",
		"^x$":               "^x$",
		"$":                 "$",
		"$$":                "$$",
		"$A":                "$A",
		"${A}":              "one",
		"x${A}y${_x}z":      "xoneyuz",
		"${B_2}":            "t w$o ${A}", // not expanded again
		"$${A}":             "${A}",
		"$$${A}":            "$${A}",
		"$${A}${A}":         "${A}one",
		"${A":               "${A",
		"${}":               "${}",
		"${1A}":             "${1A}",
		"${A-B}":            "${A-B}",
		"${ A }":            "${ A }",
		"${A:-default}":     "${A:-default}",
		"$(A)":              "$(A)",
		"$$A":               "$$A",
		"{{A}}":             "{{A}}",
	} {
		t.Run(in, func(t *testing.T) {
			quoted, _ := json.Marshal(in)
			for style, text := range map[string]string{
				"double quotes": string(quoted), "single quotes": "'" + in + "'", "block": "|-\n        " + in,
			} {
				c := mustParse(t, "auth: {mode: none}\nservers:\n  a:\n    command: [x]\n    title: "+text+"\n    env:\n      K: "+text+"\n", vars)
				if got := c.Servers["a"]; got.Title != want || got.Env["K"].Reveal() != want {
					t.Errorf("%s: title %q, secret %q; want %q", style, got.Title, got.Env["K"].Reveal(), want)
				}
			}
		})
	}
}

func TestSubstitutionElsewhere(t *testing.T) {
	vars := map[string]string{"N": "3", "ON": "true", "D": "7s", "BAD": "planted-secret", "A": "a", "EMPTY": "", "NL": "x\ny: z"}
	c := mustParse(t, "auth: {mode: none}\ncode: {workers: \"${N}\", wall_time: \"${D}\"}\naudit:\n  arguments: ${ON}\nhosts: [\"${A}.example.com\"]\n# ${UNSET} in a comment\nservers:\n  a:\n    command: [x]\n    description: ${NL}\n", vars)
	if c.Code.Workers != 3 || !c.Audit.Arguments || c.Code.WallTime != 7*time.Second || c.Hosts[0] != "a.example.com" ||
		c.Servers["a"].Description != "x\ny: z" { // a value never becomes structure

		t.Errorf("got %+v %+v %q", c.Code, c.Audit, c.Hosts)
	}
}

func TestSubstitutionErrors(t *testing.T) {
	vars := map[string]string{"BAD": "planted-secret", "EMPTY": "", "A": "a", "NL": "x\ny"}
	for text, want := range map[string]string{
		"auth: {mode: none}\nname: ${UNSET}\n":                                                    "portal.yaml:2:7: name: the environment variable UNSET is not set; set it, or write $${UNSET} for the literal text",
		"auth: {mode: none}\nname: ${EMPTY}\n":                                                    "portal.yaml:2:7: name: no value; write one or remove the key",
		"auth: {mode: none}\n${A}: x\n":                                                           `portal.yaml:2:1: ${A}: unknown key "${A}"`, // never keys
		"auth: {mode: none}\ncode:\n  workers: ${BAD}\n":                                          `portal.yaml:3:12: code.workers: must be a whole number, not "${BAD}"; write digits only, like 8`,
		"auth: {mode: none}\naudit:\n  arguments: ${BAD}\n":                                       `portal.yaml:3:14: audit.arguments: must be true or false, not "${BAD}"; write true or false`,
		"auth: {mode: none}\ncode:\n  wall_time: ${BAD}\n":                                        `portal.yaml:3:14: code.wall_time: "${BAD}" is not a duration`,
		"auth:\n  mode: ${BAD}\n":                                                                 `portal.yaml:2:9: auth.mode: "${BAD}" is not a valid value`,
		"auth: {mode: none}\nservers:\n  a:\n    url: ${BAD}\n":                                   `portal.yaml:4:10: servers.a.url: must start with https:// or http://`,
		"auth: {mode: none}\nguard:\n  rules:\n    - action: deny\n      servers: [\"${BAD}\"]\n": `portal.yaml:5:17: guard.rules[0].servers[0]: there is no server "${BAD}"`,
	} {
		_, err := Parse("portal.yaml", []byte(text), env(vars))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted-secret") {
			t.Errorf("%s: got %v\nwant %s", text, err, want)
		}
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parse := func(value string) (string, error) {
		c, err := Parse("portal.yaml", []byte("auth: {mode: none}\nservers: {a: {url: 'https://a.example.com', bearer: '"+value+"'}}\n"), env(map[string]string{"DIR": dir, "V": "file:/etc/passwd"}))
		if err != nil {
			return "", err
		}
		return c.Servers["a"].Bearer.Reveal(), nil
	}
	for text, want := range map[string]string{"tok": "tok", "tok\n": "tok", "tok\r\n": "tok", "a${X}$$b": "a${X}$$b"} {
		if got, err := parse("file:" + write("t", text)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := parse("file:${DIR}/t"); err != nil || got == "" {
		t.Errorf("a variable in the path: %q, %v", got, err)
	}
	if got, err := parse("${V}"); err != nil || got != "file:/etc/passwd" {
		t.Errorf("a variable must not become a file: %q, %v", got, err)
	}
	for value, want := range map[string]string{
		"file:" + filepath.Join(dir, "none"): "no such file",
		"file:" + dir:                        "not a regular file",
		"file:t":                             "absolute path",
		"file:" + write("empty", "\n"):       "the secret is empty",
		"file:" + write("big", strings.Repeat("planted-secret", 9000)): "longer than",
		"file:" + write("nul", "planted-secret\x00"):                   "NUL",
		"file:" + write("lines", "planted-secret\nb\n"):                "line break",
	} {
		if _, err := parse(value); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "portal.yaml:2:53: servers.a.bearer: ") || strings.Contains(err.Error(), "planted-secret") {
			t.Errorf("%s: %v; want %s", value, err, want)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	const value = "planted-secret"
	s := Secret(value)
	holder := struct {
		S Secret
		P *Secret
		M map[string]Secret
		L []Secret
	}{s, &s, map[string]Secret{"k": s}, []Secret{s}}
	c := mustParse(t, "auth: {mode: none, client_secret: planted-secret}\nstore: {redis: 'redis://:planted-secret@h'}\nservers: {a: {url: 'https://a.example.com', bearer: planted-secret, headers: {X: planted-secret}}, b: {command: [x], env: {K: planted-secret}}}\n", nil)

	var out []string
	for _, v := range []any{s, &s, holder, &holder, c, *c, c.Servers["a"], fmt.Errorf("wrapped: %v", s)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T"} {
			out = append(out, fmt.Sprintf(verb, v))
		}
		j, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		y, err := yaml.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		var text, js strings.Builder
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&js, nil)).Info("m", "v", v)
		out = append(out, string(j), string(y), text.String(), js.String(), fmt.Sprint(v), fmt.Sprintln(v))
	}
	text, err := s.MarshalText()
	out = append(out, string(text), s.String(), s.GoString())
	if err != nil {
		t.Error(err)
	}
	hexed := fmt.Sprintf("%x", value)
	for _, o := range out {
		if strings.Contains(o, value) || strings.Contains(strings.ToLower(o), hexed) {
			t.Errorf("a secret was printed: %s", o)
		}
	}
	if !strings.Contains(strings.Join(out, ""), redacted) {
		t.Error("nothing says [redacted], so this test shows nothing")
	}
	if s.Reveal() != value || c.Servers["b"].Env["K"].Reveal() != value {
		t.Error("Reveal does not give the value")
	}
}

func TestDerivedValues(t *testing.T) {
	c := mustParse(t, "auth: {mode: none}\nlisten: 127.0.0.1:9999\nlimits: {call_timeout: 3s}\nservers:\n  a: {url: 'https://a.example.com', connect_timeout: 1s}\n  b: {command: [x], dir: sub, enabled: false}\n", nil)
	if c.URL != "http://127.0.0.1:9999" || c.Auth.Audience[0] != "http://127.0.0.1:9999/mcp" || c.Auth.DevUser != "dev@localhost" {
		t.Errorf("url %q, audience %q, user %q", c.URL, c.Auth.Audience, c.Auth.DevUser)
	}
	a, b := c.Servers["a"], c.Servers["b"]
	if a.ID != "a" || a.Transport != "auto" || a.Sessions != "session" || a.ConnectTimeout != time.Second || a.CallTimeout != 3*time.Second || !a.IsEnabled() {
		t.Errorf("a: %+v", a)
	}
	if b.Transport != "stdio" || b.ConnectTimeout != 20*time.Second || b.IsEnabled() || b.Dir != filepath.Join(filepath.Dir(c.Path), "sub") {
		t.Errorf("b: %+v", b)
	}
	// The defaults of one configuration are not those of the next.
	c.Auth.Scopes[0], c.Servers["x"] = "changed", Server{}
	if d := mustParse(t, "auth: {mode: none}\n", nil); d.Auth.Scopes[0] != "openid" || len(d.Servers) != 0 {
		t.Error("configurations share memory")
	}
}

func TestWarnings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "expired-token.good.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("portal.yaml", append(text, []byte("servers: {a: {url: 'http://a.example.com', bearer: '${TOKEN}'}}\nguard: {rules: [{action: allow}, {action: deny}]}\n")...), func(string) (string, bool) { return "planted-secret", true })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"auth.service_tokens[0].expires: the service token \"old\" has expired", "servers.a.url: sends a credential over plain http", "guard.rules[0]: this rule matches every call"}
	if len(c.Warnings) != len(want) {
		t.Fatalf("warnings %q", c.Warnings)
	}
	for i, w := range want {
		if !strings.Contains(c.Warnings[i], w) || !strings.HasPrefix(c.Warnings[i], "portal.yaml:") {
			t.Errorf("warning %q; want %q", c.Warnings[i], w)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml")); err == nil || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), "--config") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("directory: %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte(strings.Repeat("# x\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("big file: %v", err)
	}
	var one Error
	_, err := Load(filepath.Join(dir, "none.yaml"))
	if !errors.As(err, &one) || errors.Is(err, fs.ErrExist) {
		t.Errorf("errors.As does not find the single error in %v", err)
	}
}

func TestHostileFiles(t *testing.T) {
	deep := strings.Repeat
	for name, text := range map[string]string{
		"flow lists": deep("[", 100000), "flow maps": deep("{a: ", 30000), "dashes": deep("- ", 60000), "keys on a line": deep("? ", 60000),
		"anchors": "a: " + deep("&a ", 40000), "quotes": deep(`"`, 100001), "long line": "name: " + deep("x", 1<<20-10), "colons": deep("a:", 60000),
		"indented": func() string {
			var b strings.Builder
			for i := range 1200 {
				b.WriteString(deep(" ", i) + "a:\n")
			}
			return b.String()
		}(),
		"aliases": "auth: {mode: none}\nhosts: &h [a, b, c]\nservers:\n" + func() string {
			var b strings.Builder
			for i := range 2000 {
				fmt.Fprintf(&b, "  s%d: {command: [x], groups: *h}\n", i)
			}
			return b.String()
		}(),
		"binary": "\x00\x01\x02", "latin": "name: \xe4\n", "only bom": "\xef\xbb\xbf", "nul": "name: a\x00b\n",
	} {
		begin := time.Now()
		if c, err := Parse("portal.yaml", []byte(text), noEnv); err == nil {
			t.Errorf("%s was accepted: %v", name, c.Name)
		}
		if d := time.Since(begin); d > 20*time.Second {
			t.Errorf("%s took %s", name, d)
		}
	}
}

func TestWindowsFile(t *testing.T) {
	c := mustParse(t, "\xef\xbb\xbfauth:\r\n  mode: none\r\nname: |-\r\n  a\r\nhosts:\r\n  - b\r\n", nil)
	if c.Name != "a" || !reflect.DeepEqual(c.Hosts, []string{"b"}) {
		t.Errorf("got %q %q", c.Name, c.Hosts)
	}
	_, err := Parse("portal.yaml", []byte("auth:\r\n  mode: none\r\nnam: x\r\n"), noEnv)
	if err == nil || !strings.HasPrefix(err.Error(), "portal.yaml:3:1: nam:") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), "file:") {
			return // names a file of this machine
		}
		c, err := Parse("portal.yaml", text, env(map[string]string{"A": "b"}))
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v and error %v", c, err)
		}
		if err != nil {
			checkPositions(t, text, err)
		}
	})
}
