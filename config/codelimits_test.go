package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func codeOf(t *testing.T, keys, limits string) (Code, error) {
	t.Helper()
	text := "auth: {mode: none}\nservers: {dns: {url: \"https://dns.example.com/mcp\"}}\n"
	if keys != "" {
		text += "code: {" + keys + "}\n"
	}
	if limits != "" {
		text += "limits: {" + limits + "}\n"
	}
	c, err := Parse("portal.yaml", []byte(text), noEnv)
	if err != nil {
		return Code{}, err
	}
	return c.Code, nil
}

// contradictions has one row for each limit of code that lies within another:
// a file that gives only the outer one, what the inner one becomes, and an inner
// one that is refused beside it.
var contradictions = []struct {
	key, outer     string
	narrow, limits string // the outer limit, smaller than the inner's default
	derived        func(Code) any
	want           any
	refused        string // the inner limit, larger than that
	fits           string // and one that just fits
	says           string
}{
	{"code.workers", "code.max_workers", "max_workers: 1, runs_per_user: 1", "", func(c Code) any { return c.Workers }, 1, "workers: 2", "workers: 1", "2 is more than code.max_workers (1)"},
	{"code.runs_per_user", "code.max_workers", "max_workers: 3", "", func(c Code) any { return c.RunsPerUser }, 3, "runs_per_user: 4", "runs_per_user: 3", "4 is more than code.max_workers (3)"},
	{"code.cpu_time", "code.wall_time", "wall_time: 2s", "", func(c Code) any { return c.CPUTime }, 2 * time.Second, "cpu_time: 2100ms", "cpu_time: 2s", "2.1s is longer than code.wall_time (2s)"},
	{"code.parallel", "code.max_calls", "max_calls: 5", "", func(c Code) any { return c.Parallel }, 5, "parallel: 6", "parallel: 5", "6 is more than code.max_calls (5)"},
	{"code.paused_per_user", "code.paused_in_all", "paused_in_all: 6", "", func(c Code) any { return c.PausedPerUser }, 6, "paused_per_user: 7", "paused_per_user: 6", "7 is more than code.paused_in_all (6)"},
	{"code.max_source", "limits.body", "", "body: 50000", func(c Code) any { return c.MaxSource }, 50000, "max_source: 50001", "max_source: 50000", "50001 is more than limits.body (50000), so it is never reached"},
	{"code.max_call_result", "limits.message", "", "message: 1000000", func(c Code) any { return c.MaxCallResult }, 1000000, "max_call_result: 1000001", "max_call_result: 1000000", "1000001 is more than limits.message (1000000), so it is never reached"},
	{"code.max_call_result", "code.memory_mb", "memory_mb: 32", "", func(c Code) any { return c.MaxCallResult }, 2 << 20, "max_call_result: 2097153", "max_call_result: 2097152", "16 times as much in the sandbox, more than code.memory_mb (32)"},
	{"code.max_arguments", "code.memory_mb", "memory_mb: 32", "", func(c Code) any { return c.MaxArguments }, 1 << 20, "max_arguments: 2097153", "max_arguments: 2097152", "more than code.memory_mb (32)"},
	{"code.max_value", "code.memory_mb", "memory_mb: 32", "", func(c Code) any { return c.MaxValue }, 2 << 20, "max_value: 2097153", "max_value: 2097152", "more than code.memory_mb (32)"},
	{"code.max_content", "code.memory_mb", "memory_mb: 32", "", func(c Code) any { return c.MaxContent }, 2 << 20, "max_content: 2097153", "max_content: 2097152", "more than code.memory_mb (32)"},
	{"code.result_tokens", "code.max_value", "max_value: 8000", "", func(c Code) any { return c.ResultTokens }, 2000, "result_tokens: 2001", "result_tokens: 2000", "2001 tokens are up to 8004 bytes, more than code.max_value (8000)"},
}

func TestInnerLimitsOfCodeFollowFromOuterOnes(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range contradictions {
		tested[c.key+" "+c.outer] = true
		t.Run(c.key+" in "+c.outer, func(t *testing.T) {
			got, err := codeOf(t, c.narrow, c.limits)
			if err != nil {
				t.Fatalf("only the outer limit is given: %v", err)
			}
			if v := c.derived(got); v != c.want {
				t.Errorf("derived %v, want %v", v, c.want)
			}
			with := func(inner string) string { return strings.TrimPrefix(c.narrow+", "+inner, ", ") }
			_, err = codeOf(t, with(c.refused), c.limits)
			var errs Errors
			if !errors.As(err, &errs) || len(errs) != 1 {
				t.Fatalf("%s beside %s: %v", c.refused, c.narrow+c.limits, err)
			}
			if e := errs[0]; e.Path != c.key || e.Line != 3 || !strings.Contains(e.Message, c.says) || !strings.HasSuffix(e.Message, "; lower it or raise the other") {
				t.Errorf("%s, line %d: %s", e.Path, e.Line, e.Message)
			}
			if _, err = codeOf(t, with(c.fits), c.limits); err != nil {
				t.Errorf("%s fits: %v", c.fits, err)
			}
		})
	}
	for _, b := range codeBounds() {
		if !tested[b.key+" "+b.outer] {
			t.Errorf("no row for %s in %s", b.key, b.outer)
		}
	}
}

// The defaults are what is derived when nothing is given: they must not
// contradict each other.
func TestDefaultLimitsOfCodeFit(t *testing.T) {
	c := Defaults()
	for _, b := range codeBounds() {
		if b.inner(c) > b.most(c) {
			t.Errorf("%s: %s", b.key, b.why(c))
		}
	}
	got, err := codeOf(t, "", "")
	if err != nil || fmt.Sprint(got) != fmt.Sprint(c.Code) {
		t.Errorf("an empty section gives %+v, the defaults are %+v (%v)", got, c.Code, err)
	}
}
