package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// An edit of the limits of code counts for the runs that begin after it, without
// a restart; one that contradicts itself changes nothing.
func TestLimitsOfCodeByEdit(t *testing.T) {
	yaml := func(code string) string {
		return "listen: 127.0.0.1:0\nauth: {mode: none}\nservers: {}\ncode: {" + code + "}\n"
	}
	cfg := writeConfig(t, yaml("max_calls: 50"))
	p := startProcess(t, "serve", "--config", cfg)
	s := connect(t, p, modern, "optimize_context=search_and_execute", nil)
	run := func(code string) string {
		return text(t, call(t, s, "portal_execute", map[string]any{"code": code}))
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(cfg+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(cfg+".new", cfg); err != nil {
			t.Fatal(err)
		}
	}
	said := func(code, part string) func() error {
		return func() error {
			if got := run(code); !strings.Contains(got, part) {
				return fmt.Errorf("%q is not in %.300s", part, got)
			}
			return nil
		}
	}
	const five = "for (let i = 0; i < 5; i++) await codemode.tools(); return 'all'"
	if err := said(five, "all")(); err != nil {
		t.Fatal(err)
	}
	write(yaml("max_calls: 3, max_value: 5000, memory_mb: 64"))
	eventually(t, "the new number of calls", said(five, "more than 3 times"))
	if err := said("const a = []; for (;;) a.push({a: [1]})", "memory limit of 64 MB")(); err != nil {
		t.Error(err)
	}
	if err := said("return 'x'.repeat(9000)", "more characters")(); err != nil {
		t.Error(err)
	}
	write(yaml("max_calls: 4, parallel: 5"))
	eventually(t, "the report of the contradiction", func() error {
		if !strings.Contains(p.output(), "code.parallel: 5 is more than code.max_calls (4)") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if err := said(five, "more than 3 times")(); err != nil {
		t.Errorf("after the broken edit: %v", err)
	}
}
