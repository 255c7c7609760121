package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes an executable script.
func program(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "print secret")
	write(t, path, "#!/bin/sh\n"+body+"\n")
	do(t, os.Chmod(path, 0o755))
	return path
}

func TestExecSecret(t *testing.T) {
	t.Setenv("PORTAL_CANARY", "other-secret-of-the-portal")
	parse := func(value string) (string, error) {
		c, err := Parse("portal.yaml", []byte("auth: {mode: none}\nservers: {a: {url: 'https://a.example.com', bearer: '"+value+"'}}\n"), noEnv)
		if err != nil {
			return "", err
		}
		return c.Servers["a"].Bearer.Reveal(), nil
	}
	ok := program(t, `printf '%s-%s$PORTAL_CANARY\n' "$1" "$PORTAL_CANARY"`)
	got, err := parse(`exec:["` + ok + `","one two; id"]`)
	if err == nil {
		t.Errorf("a token with spaces passed: %q", got)
	}
	got, err = parse(`exec:["` + ok + `","$(id)"]`)
	if want := "$(id)-$PORTAL_CANARY"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q: no shell, no other secrets in the environment", got, err, want)
	}
	for name, c := range map[string]struct{ value, want string }{
		"relative":   {"exec:printf x", "absolute path"},
		"empty":      {"exec: ", "names no program"},
		"not a list": {"exec:[1]", "JSON list"},
		"missing":    {"exec:/nonexistent/program", "cannot be run"},
		"fails":      {`exec:["` + program(t, "echo canary-of-the-command; exit 3") + `"]`, "exit code 3"},
		"floods":     {`exec:["` + program(t, "yes canary-of-the-command") + `"]`, "more than"},
		"nothing":    {`exec:["` + program(t, "true") + `"]`, "empty"},
	} {
		_, err := parse(c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v; want an error with %q that does not repeat the output", name, err, c.want)
		}
	}
}

// TestExecSecretIsReadAgain has a program print another secret later.
func TestExecSecretIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "portal.yaml"), filepath.Join(t.TempDir(), "s")
	write(t, secret, "one")
	write(t, path, named("x")+`servers: {a: {url: "https://a.example.com", bearer: 'exec:["`+program(t, "cat "+secret)+`"]'}}`+"\n")
	c, err := Load(path)
	do(t, err)
	var got []string
	w := newWatcher(path, c.sources, nil, func(c *Config) { got = append(got, c.Servers["a"].Bearer.Reveal()) }, func(err error) { t.Error(err) })
	w.settle = time.Millisecond
	write(t, secret, "two")
	if w.changed() || w.changed() {
		t.Error("the program ran again at once: it is asked now and then only")
	}
	w.rerun = 0
	if !w.changed() {
		t.Fatal("the new secret is not seen")
	}
	for !w.reload() {
		time.Sleep(time.Millisecond)
	}
	if len(got) != 1 || got[0] != "two" {
		t.Errorf("got %q", got)
	}
}
