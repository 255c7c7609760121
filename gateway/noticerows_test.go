package gateway_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// B002: however often a server says that its list changed, a client hears of it
// only when what it is shown differs: not for equal lists, and not for a tool
// that is kept from this client.
func TestB002_NoticesWithoutChangeReachNobody(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p, as := company(t, trusted(v)+"    tools: {secret: {groups: [chiefs]}}\n")
	p.until("the portal listens", func() bool { return v.Listeners() > 0 })
	staff, chiefs := map[era]*feed{}, map[era]*feed{}
	for _, e := range []era{legacy, modern} {
		for user, feeds := range map[string]map[era]*feed{"staff": staff, "chiefs": chiefs} {
			f := p.client(e, "", noCaps, as(user, user)).feed(`{"toolsListChanged":true}`)
			p.until("the stream is open", f.opened)
			feeds[e] = f
		}
	}
	const told = "notifications/tools/list_changed"
	lists := v.Count("tools/list")
	for range 20 {
		v.EmitListChanged() // the list is the same
	}
	p.until("the list was read again", func() bool { return v.Count("tools/list") > lists })
	v.AddTool(toolDef("secret", readOnly))
	v.EmitListChanged()
	for _, f := range chiefs {
		f.wait(1, told)
	}
	// What comes last is seen by all: by then the others would have come.
	v.AddTool(toolDef("open", readOnly))
	v.EmitListChanged()
	for e, f := range staff {
		f.wait(1, told)
		if n := f.count(told); n != 1 {
			t.Errorf("%s: who sees one change was told %d times: %q", e, n, f.all())
		}
	}
	for e, f := range chiefs {
		f.wait(2, told)
		if n := f.count(told); n != 2 {
			t.Errorf("%s: who sees two changes was told %d times: %q", e, n, f.all())
		}
	}
}

// B019: DELETE gives back all that a session holds: its stream, its session at
// the server, its child process.
func TestB019_DeleteReleasesEverything(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	starts := t.TempDir() + "/starts"
	child := upstreamtest.Child{Starts: starts}.Server(nil)
	yaml := trusted(v) + "  c:\n    command: [" + fmt.Sprintf("%q, %q", child.Command[0], child.Command[1]) + "]\n    sessions: session\n    trust_annotations: true\n    tools: {echo: {class: read}}\n    env:\n"
	for k, s := range child.Env {
		yaml += fmt.Sprintf("      %s: %q\n", k, s.Reveal())
	}
	p := start(t, yaml, nil)
	before := v.Sessions() // the catalogue's
	first := processes(t, starts)
	stays, goes := p.client(legacy, "", noCaps, nil), p.client(legacy, "", noCaps, nil)
	for _, c := range []*client{stays, goes} {
		for _, tool := range []string{"s_look", "c_echo"} {
			if got := c.call(tool, `{}`, "", nil); got.Error != nil || got.Err != nil || got.Result.IsError {
				t.Fatalf("%s: %s %v", tool, got.Raw, got.Err)
			}
		}
	}
	if v.Sessions() != before+2 || processes(t, starts) != first+2 {
		t.Fatalf("%d sessions, %d children, want two more than %d and %d", v.Sessions(), processes(t, starts), before, first)
	}
	f := goes.feed("")
	p.until("the stream is open", f.opened)
	if status := goes.end(nil); status/100 != 2 {
		t.Fatalf("DELETE: %d", status)
	}
	p.until("the stream has ended", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.end })
	p.until("its session at the server has ended", func() bool { return v.Sessions() == before+1 })
	p.until("its child has ended", func() bool { return processes(t, starts) == first+1 })
	if got := stays.call("s_look", `{}`, "", nil); !strings.HasPrefix(got.text(), "ran look") {
		t.Errorf("the other session: %s", got.Raw)
	}
}

// processes is how many of the children that noted their start still run.
func processes(t *testing.T, starts string) (n int) {
	t.Helper()
	b, err := os.ReadFile(starts)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(b)) {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			n++
		}
	}
	return n
}
