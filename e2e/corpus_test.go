package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
)

// The real tool lists of the corpus behind one portal: every tool is listed,
// and each optimisation saves what it promises.
func TestRealCatalogue(t *testing.T) {
	dumps, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil || len(dumps) < 30 {
		t.Fatalf("the corpus is not there: %v, %d dumps", err, len(dumps))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	yaml := "listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n"
	total := 0
	for _, d := range dumps {
		id := filepath.Base(filepath.Dir(d))
		raw, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		total += len(list.Tools)
		mux.Handle("/"+id+"/mcp", rawUpstream(func(method string, _ json.RawMessage) string {
			if method == "tools/list" {
				return string(raw)
			}
			return ""
		}))
		yaml += fmt.Sprintf("  %s: {url: http://%s/%s/mcp}\n", id, ln.Addr(), id)
	}
	hs := &http.Server{Handler: mux}
	go func() { _ = hs.Serve(ln) }()
	defer hs.Close()
	p := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	p.waitServers(t, len(dumps))
	count := func(query string) (tools, cost int) {
		_, b := post(t, p.URL+query, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil)
		var m struct {
			Result struct{ Tools json.RawMessage }
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(m.Result.Tools, &list); err != nil {
			t.Fatal(err)
		}
		return len(list), tokens(t, m.Result.Tools)
	}
	all, full := count("")
	_, minimal := count("?optimize_context=minimize_tools")
	two, tiny := count("?optimize_context=search_and_execute")
	t.Logf("%d tools of %d servers: all %d tokens, minimised %d (1/%.0f), two tools %d (1/%.0f) (o200k_base)", total, len(dumps), full, minimal, float64(full)/float64(minimal), tiny, float64(full)/float64(tiny))
	if all != total+3 {
		t.Errorf("%d tools are listed, want %d and 3 of the portal", all, total)
	}
	if minimal*10 > full {
		t.Errorf("minimize_tools costs %d tokens of %d: a tenth was promised", minimal, full)
	}
	if two != 2 || tiny > 900 {
		t.Errorf("search_and_execute: %d tools, %d tokens", two, tiny)
	}
	// The answer to a search stays bounded whatever is found.
	s := connect(t, p, modern, "optimize_context=search_and_execute", nil)
	for _, args := range []map[string]any{
		{"query": "create", "detail": "full", "limit": 100},
		{"pattern": ".", "detail": "full", "limit": 100},
		{"pattern": ".", "detail": "names", "limit": 100},
		{"names": []string{"ms365_create-sharepoint-list"}},
		{},
	} {
		got := text(t, call(t, s, "portal_query_tools", args))
		if n := tokens(t, got); n > 9000 {
			t.Errorf("%v: the answer has %d tokens", args, n)
		}
		if len(args) > 0 && !strings.Contains(got, "showing ") {
			t.Errorf("%v: no count: %.200s", args, got)
		}
	}
}
