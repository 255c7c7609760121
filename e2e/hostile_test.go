package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Hostile scripts end in a clear error while 20 others go on, and memory is
// back at its baseline after.
func TestHostileScripts(t *testing.T) {
	_, url := serveCompany(t, companyOptions)
	cfg := writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\ncode: {wall_time: 6s, cpu_time: 2s, memory_mb: 128, runs_per_user: 6, queue_per_user: 40}\nservers:\n"+companyServers(url))
	p := startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 8)
	hostile := map[string]string{
		"endless loop":          "while(true){}",
		"2**30 characters":      "return 'a'.repeat(2**30)",
		"throwing getter":       "return {get x(){ throw new Error('boo') }}",
		"looping getter":        "return {get x(){ for(;;); }}",
		"sparse array":          "const a = []; a[4294967294] = 1; return a",
		"catastrophic regexp":   "return /(?=a)(a+)+b/.test('a'.repeat(40))",
		"million-deep JSON":     "return JSON.parse('['.repeat(1e6) + ']'.repeat(1e6))",
		"promise never settles": "await new Promise(() => {})",
		"endless microtasks":    "for(;;) await null",
		"deep recursion":        "function f(){ f() } f()",
		"bad comparator":        "return new Array(1e6).fill(0).map((_, i) => i).sort(() => { for(;;); })",
	}
	session := connect(t, p, legacy, "optimize_context=search_and_execute", nil)
	good := "let n = 0; for (let page = 1; page <= 3; page++) n += (await codemode.dns_zones_list({page})).result.length; return n"
	if res := call(t, session, "portal_execute", map[string]any{"code": good}); text(t, res) != "55" {
		t.Fatalf("warm-up: %s", text(t, res))
	}
	base := rss(t, p.cmd.Process.Pid)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var mu sync.Mutex
	done, wrong := 0, ""
	for i := range 20 {
		s := connect(t, p, eras[i%2], "optimize_context=search_and_execute", nil)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "portal_execute", Arguments: map[string]any{"code": good}})
				mu.Lock()
				switch {
				case err != nil:
					wrong = err.Error()
				case res.Content[0].(*mcp.TextContent).Text != "55":
					// Waiting in line behind hostile runs of the same user may
					// end in "busy", which is an honest answer.
					if txt := res.Content[0].(*mcp.TextContent).Text; !strings.Contains(txt, "Busy") {
						wrong = txt
					}
				default:
					done++
				}
				mu.Unlock()
			}
		})
	}
	for name, code := range hostile {
		mu.Lock()
		before := done
		mu.Unlock()
		begin := time.Now()
		res := call(t, session, "portal_execute", map[string]any{"code": code})
		took := time.Since(begin)
		got := text(t, res)
		switch name {
		case "sparse array":
			// Cut to its budget, or refused: both are honest.
			if len(got) > 40000 {
				t.Errorf("%s: %d bytes came back", name, len(got))
			}
		default:
			if !res.IsError {
				t.Errorf("%s: no error: %.300s", name, got)
			}
			var o struct {
				Status string
				Error  struct{ Kind, Message string }
			}
			if err := json.Unmarshal(mustJSON(res.StructuredContent), &o); err != nil || o.Error.Kind == "" || o.Error.Message == "" {
				t.Errorf("%s: %s", name, mustJSON(res.StructuredContent))
			}
		}
		t.Logf("%s: %v: %.160s", name, took.Round(time.Millisecond), got)
		if took > 60*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		eventually(t, "the others go on after "+name, func() error {
			mu.Lock()
			defer mu.Unlock()
			if done <= before {
				return fmt.Errorf("none of 20 finished")
			}
			return nil
		})
	}
	close(stop)
	wg.Wait()
	if wrong != "" {
		t.Errorf("another execution failed: %s", wrong)
	}
	t.Logf("%d good executions meanwhile", done)
	eventually(t, "memory is back", func() error {
		if now := rss(t, p.cmd.Process.Pid); now > base+64<<20 {
			return fmt.Errorf("%d MB, before %d MB", now>>20, base>>20)
		}
		return nil
	})
	if runs, _ := p.status(t)["runs"].(float64); runs != 0 {
		t.Errorf("%v runs are left", runs)
	}
}

// rss is the resident memory of a process in bytes.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
