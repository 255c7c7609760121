package registry

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/corpora"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	f, err := os.Open(corpora.Path(t, path))
	if err != nil {
		t.Fatalf("the corpora belong beside the checkout: %v", err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		r = z
	}
	if err := json.NewDecoder(r).Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// dumps are the catalogues of real servers, by server id.
func dumps(t testing.TB) map[string]*upstreams.Catalogue {
	t.Helper()
	files, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d dumps of real servers beside the checkout: %v", len(files), err)
	}
	out := map[string]*upstreams.Catalogue{}
	for _, f := range files {
		id := filepath.Base(filepath.Dir(f))
		switch id {
		case "playwright-allcaps", "azure-namespace", "github-default", "twilio-all": // variants of others
			continue
		}
		c := &upstreams.Catalogue{}
		readJSON(t, "mcp-tools/"+id+"/tools-list.json", c)
		out[id] = c
	}
	return out
}

// crawl is the large catalogue of a public registry, with ids made valid.
func crawl(t testing.TB) map[string]*upstreams.Catalogue {
	t.Helper()
	var list []struct {
		Server string            `json:"server"`
		Tools  []json.RawMessage `json:"tools"`
	}
	readJSON(t, "mcp-catalogue-large/smithery-2025-10.json.gz", &list)
	out := map[string]*upstreams.Catalogue{}
	for _, s := range list {
		id := strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(s.Server)), "-")
		for strings.Contains(id, "--") {
			id = strings.ReplaceAll(id, "--", "-")
		}
		for out[id] != nil || id == "" {
			id += "x"
		}
		out[id] = &upstreams.Catalogue{Tools: s.Tools}
	}
	return out
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// loaded is a registry that has the catalogues, all of them listed.
func loaded(t testing.TB, catalogues map[string]*upstreams.Catalogue, nameMax int) *Registry {
	t.Helper()
	r := New(Options{Log: quiet(), Catalog: config.Catalog{NameMax: nameMax}})
	t.Cleanup(r.Close)
	servers := map[string]config.Server{}
	for id := range catalogues {
		servers[id] = config.Server{URL: "https://" + id + ".example/mcp"}
	}
	r.SetServers(servers)
	for id, c := range catalogues {
		r.Update(id, c)
		r.SetStatus(upstreams.Status{Server: id, State: upstreams.Ready})
	}
	return r
}

func raws(list ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, s := range list {
		out = append(out, json.RawMessage(s))
	}
	return out
}

// named is a catalogue of bare tools.
func named(names ...string) *upstreams.Catalogue {
	c := &upstreams.Catalogue{}
	for _, n := range names {
		b, _ := json.Marshal(map[string]any{"name": n, "description": "does " + n, "inputSchema": map[string]any{"type": "object", "properties": map[string]any{}}})
		c.Tools = append(c.Tools, b)
	}
	return c
}
