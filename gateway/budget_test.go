package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What code returns of content blocks is within bounds, and what was left out
// is said. Bounds: 6000 tokens of text, some 30 KB, beside 4 MiB of media.
func TestContentBlocksOfCodeAreBounded(t *testing.T) {
	blocks := map[string]string{
		"resource": `{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"` + strings.Repeat("secret words ", 25000) + `"}}`,
		"text":     `{"type":"text","text":"` + strings.Repeat("words ", 50000) + `"}`,
		"link":     `{"type":"resource_link","uri":"` + strings.Repeat("a", 300000) + `","name":"x"}`,
		"vendor":   `{"type":"vendor","x":"` + strings.Repeat("a", 300000) + `"}`,
		"blob":     `{"type":"resource","resource":{"uri":"a:b","blob":"` + strings.Repeat("AAAA", 75000) + `"}}`,
		"image":    `{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", 200000) + `"}`,
		"small":    `{"type":"text","text":"small"}`,
	}
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		var kind string
		_ = json.Unmarshal(c.Arguments().Get("id"), &kind)
		c.Result(`{"content":[` + blocks[kind] + `]}`)
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	for _, r := range []struct {
		code     string
		max      int
		cut      bool
		contains string
	}{
		{"return await s.look({id:'small'})", 2000, false, "small"},
		{"return await s.look({id:'resource'})", 80_000, true, "secret words"},
		{"return await s.look({id:'text'})", 80_000, true, "words"},
		{"return await s.look({id:'link'})", 80_000, true, ""},
		{"return await s.look({id:'vendor'})", 80_000, true, ""},
		{"return await s.look({id:'blob'})", 80_000, true, ""},
		{"const a = []; for (let i = 0; i < 30; i++) a.push(await s.look({id:'resource'})); return a", 160_000, true, ""},
		{"return await s.look({id:'image'})", 900_000, false, "image/png"},
		{"const a = []; for (let i = 0; i < 6; i++) a.push(await s.look({id:'image'})); return a", 4_400_000, true, "image/png"},
		{"await s.look({id:'resource'}); return 1", 80_000, false, "1"},
		{"throw new Error('y'.repeat(1e6))", 40_000, false, "yyy"},
		{"const e = new Error('a'); e.name = 'N'.repeat(1e6); throw e", 40_000, false, ""},
		{"for (let i = 0; i < 1e4; i++) console.log('z'.repeat(1000)); return 1", 80_000, false, "console lines were cut"},
		{"return 'x'.repeat(1e6)", 80_000, true, "xxx"},
		{"return '\\u2028'.repeat(1e5)", 120_000, true, ""},
	} {
		got := c.code(r.code, "", nil)
		if got.Err != nil || !json.Valid([]byte(got.Raw)) || len(got.Raw) > r.max || !strings.Contains(got.Raw, r.contains) {
			t.Errorf("%s: %d bytes (at most %d), want %q: %v %.300s", r.code, len(got.Raw), r.max, r.contains, got.Err, got.Raw)
		}
		said := strings.Contains(got.text(), "left out") || strings.Contains(got.text(), "was cut")
		if r.cut && !said {
			t.Errorf("%s: was cut without a word: %d bytes, %.300s", r.code, len(got.Raw), got.text())
		}
	}
}
