package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What a model reads before it does anything: the two tools, whole, with their
// schemas, under 700 tokens whatever is behind the portal.
func TestTwoToolsStayUnder700Tokens(t *testing.T) {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, upstreamtest.Modern, nil)
	for _, n := range []int{1, 80} {
		var b strings.Builder
		b.WriteString("servers:\n")
		for i := range n {
			fmt.Fprintf(&b, "  warehouse-%02d:\n    url: %s\n    description: \"Stock, orders and deliveries of the warehouse in region number %d\"\n", i, v.URL, i)
		}
		p := start(t, b.String(), nil)
		for _, e := range []era{legacy, modern} {
			for _, mode := range []string{twoTools, "?codemode=search_and_execute"} {
				c := p.client(e, mode, noCaps, nil)
				got := c.do("tools/list", "", nil)
				var list struct {
					Result struct {
						Tools []json.RawMessage `json:"tools"`
					} `json:"result"`
				}
				if err := json.Unmarshal([]byte(got.Raw), &list); err != nil || len(list.Result.Tools) != 2 {
					t.Fatalf("%v: %.400s", err, got.Raw)
				}
				all := 0
				for _, def := range list.Result.Tools {
					k, err := enc.Count(string(def))
					if err != nil {
						t.Fatal(err)
					}
					all += k
				}
				t.Logf("%d servers, %v, %s: %d tokens", n, e, mode, all)
				if all >= 700 {
					t.Errorf("%d servers, %s: the two tools cost %d tokens", n, mode, all)
				}
				if n == 80 && !strings.Contains(got.Raw, "warehouse-00") {
					t.Error("no server is named")
				}
			}
		}
		p.stop()
	}
}
