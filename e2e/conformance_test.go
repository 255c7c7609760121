package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
)

// expectations are the file of what the suite may find, and why.
type expectations struct {
	Failures []expectedFailures `yaml:"failures"`
	NotRun   []notRun           `yaml:"not_run"`
}

// expectedFailures are checks that fail in some runs for one reason.
type expectedFailures struct {
	Reason string `yaml:"reason"`
	// Runs are names of runs, like "server 2025-11-25 before 2026-07-28".
	Runs []string `yaml:"runs"`
	// Checks are "scenario/check", either of which may be a pattern.
	Checks []string `yaml:"checks"`
	// Direct says that the checks fail as well where the suite reaches the
	// server without the portal between, which the test verifies.
	Direct bool `yaml:"direct"`
}

// notRun are client scenarios, by pattern, that are not run.
type notRun struct {
	Scenarios []string `yaml:"scenarios"`
	Reason    string   `yaml:"reason"`
}

const expectationsFile = "testdata/conformance.yaml"

func readExpectations(t *testing.T) expectations {
	t.Helper()
	raw, err := os.ReadFile(expectationsFile)
	if err != nil {
		t.Fatal(err)
	}
	var e expectations
	if err := yaml.UnmarshalWithOptions(raw, &e, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", expectationsFile, err)
	}
	for _, f := range e.Failures {
		if strings.TrimSpace(f.Reason) == "" || len(f.Runs) == 0 || len(f.Checks) == 0 {
			t.Errorf("%s: an entry lacks its reason, runs or checks: %+v", expectationsFile, f)
		}
	}
	return e
}

// of are the entries about a run.
func (e expectations) of(run string) []expectedFailures {
	var out []expectedFailures
	for _, f := range e.Failures {
		if slices.Contains(f.Runs, run) {
			out = append(out, f)
		}
	}
	return out
}

// failures are the checks that failed, as "scenario/check", with what the suite
// says of them.
func (r results) failures() map[string]string {
	out := map[string]string{}
	for scenario, checks := range r {
		for _, v := range checks {
			if v.Status == "FAILURE" {
				out[scenario+"/"+v.Name] = v.Message
			}
		}
	}
	return out
}

// compare holds a run's results against what is expected: every failure is
// expected, everything expected fails, and what is said to fail without the
// portal does so there.
func compare(found, direct results, expected []expectedFailures) (problems []string) {
	failed, failedDirect := found.failures(), direct.failures()
	listed := map[string]bool{}
	for _, f := range expected {
		for _, pattern := range f.Checks {
			used := false
			for check := range failed {
				if ok, err := path.Match(pattern, check); err != nil || !ok {
					continue
				}
				used, listed[check] = true, true
				if _, too := failedDirect[check]; f.Direct && !too {
					problems = append(problems, check+" fails only with the portal between")
				}
			}
			if !used {
				problems = append(problems, fmt.Sprintf("%s is expected to fail and does not: take it out of %s", pattern, expectationsFile))
			}
		}
	}
	for check, why := range failed {
		if !listed[check] {
			problems = append(problems, fmt.Sprintf("%s fails: %s", check, why))
		}
	}
	slices.Sort(problems)
	return problems
}

// The official conformance suite: the portal as a server before the SDK's
// conformance server, as the client of the suite's own servers, in both eras
// of each side, as an authorization server, and signing in at the suite's.
func TestConformance(t *testing.T) {
	expect := readExpectations(t)
	var mu sync.Mutex
	all := map[string]results{}
	var order []string
	keep := func(run string, r results) {
		mu.Lock()
		defer mu.Unlock()
		if all[run] == nil {
			all[run] = results{}
			order = append(order, run)
		}
		maps.Copy(all[run], r)
	}

	server := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", server, conformanceServer).CombinedOutput(); err != nil {
		t.Fatalf("build the SDK's conformance server: %v\n%s", err, out)
	}
	scenarios := map[era]map[string]string{}
	for _, e := range eras {
		scenarios[e] = suiteScenarios(t, "Server", string(e))
	}
	t.Run("runs", func(t *testing.T) {
		for _, front := range eras {
			t.Run("direct/"+string(front), func(t *testing.T) {
				t.Parallel()
				keep(directRun(front), runServerSuite(t, startConformanceServer(t, server, modern), front, scenarios[front]))
			})
			for _, back := range eras {
				t.Run(fmt.Sprintf("server/%s/%s", front, back), func(t *testing.T) {
					t.Parallel()
					p := startProcess(t, "serve", "--config", writeConfig(t, conformanceConfig(startConformanceServer(t, server, back))))
					p.waitServers(t, 1)
					keep(fmt.Sprintf("server %s before %s", front, back), runServerSuite(t, p.URL, front, scenarios[front]))
				})
			}
		}
		t.Run("authorization", func(t *testing.T) {
			t.Parallel()
			for revision, r := range runAuthorizationSuite(t) {
				keep("authorization server "+string(revision), r)
			}
		})
		for scenario, revisions := range suiteScenarios(t, "Client", "") {
			if expect.leavesOut(scenario) {
				continue
			}
			if signInScenario(scenario) {
				// Who sits behind the portal makes no difference there.
				for revision := range strings.SplitSeq(revisions, ",") {
					t.Run("sign-in/"+revision+"/"+scenario, func(t *testing.T) {
						t.Parallel()
						keep("signing in at a server, "+revision, runClientScenario(t, scenario, legacy, era(revision)))
					})
				}
				continue
			}
			for _, harness := range eras {
				if !strings.Contains(revisions, string(harness)) {
					continue
				}
				for _, front := range eras {
					t.Run(fmt.Sprintf("client/%s/%s/%s", front, harness, scenario), func(t *testing.T) {
						t.Parallel()
						keep(fmt.Sprintf("client %s behind, %s before", front, harness), runClientScenario(t, scenario, front, harness))
					})
				}
			}
		}
	})
	if t.Failed() {
		return
	}
	slices.Sort(order)
	for _, run := range order {
		if !strings.HasPrefix(run, "direct ") {
			front := strings.Fields(run)[1]
			for _, p := range compare(all[run], all[directRun(era(front))], expect.of(run)) {
				t.Errorf("%s: %s", run, p)
			}
		}
	}
	for _, f := range expect.Failures {
		for _, run := range f.Runs {
			if all[run] == nil {
				t.Errorf("%s names a run %q; the runs are %q", expectationsFile, run, order)
			}
			if f.Direct && !strings.HasPrefix(run, "server ") {
				t.Errorf("%s: %q cannot be compared with a run without the portal", expectationsFile, run)
			}
		}
	}
	t.Logf("results of the conformance suite:\n%s", table(order, all, expect))
}

func directRun(front era) string { return "direct " + string(front) }

// leavesOut reports whether a client scenario is not run.
func (e expectations) leavesOut(scenario string) bool {
	for _, n := range e.NotRun {
		for _, pattern := range n.Scenarios {
			if ok, _ := path.Match(pattern, scenario); ok {
				return true
			}
		}
	}
	return false
}

// table is the outcome for people.
func table(order []string, all map[string]results, expect expectations) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "run\tscenarios\tchecks passed\tfailed, as listed\twarnings")
	for _, run := range order {
		passed, warned := 0, 0
		for scenario, checks := range all[run] {
			p, _ := all[run].counts(scenario)
			passed += p
			for _, v := range checks {
				if v.Status == "WARNING" {
					warned++
				}
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", run, len(all[run]), passed, len(all[run].failures()), warned)
	}
	_ = w.Flush()
	for _, f := range expect.Failures {
		fmt.Fprintf(&b, "%s (%s): %s\n", strings.Join(f.Checks, ", "), strings.Join(f.Runs, ", "), strings.TrimSpace(f.Reason))
	}
	for _, n := range expect.NotRun {
		fmt.Fprintf(&b, "not run: %s: %s\n", strings.Join(n.Scenarios, ", "), strings.TrimSpace(n.Reason))
	}
	return b.String()
}

// A list that is stale or short fails the test.
func TestConformanceListIsHeld(t *testing.T) {
	found := results{"a": {{Name: "X", Status: "FAILURE", Message: "broke"}, {Name: "Y", Status: "SUCCESS"}, {Name: "W", Status: "WARNING"}}}
	direct := results{"a": {{Name: "X", Status: "SUCCESS"}}}
	for _, c := range []struct {
		what     string
		expected []string
		direct   bool
		want     string // "": no problem
	}{
		{"listed", []string{"a/X"}, false, ""},
		{"listed by pattern", []string{"a/*"}, false, ""},
		{"not listed", nil, false, "a/X fails: broke"},
		{"stale check", []string{"a/X", "a/Y"}, false, "a/Y is expected to fail and does not"},
		{"stale scenario", []string{"a/X", "b*/*"}, false, "b*/* is expected to fail and does not"},
		{"blamed on the server", []string{"a/X"}, true, "a/X fails only with the portal between"},
	} {
		got := strings.Join(compare(found, direct, []expectedFailures{{Checks: c.expected, Direct: c.direct}}), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
