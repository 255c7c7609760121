package gateway_test

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// The status names rules about tools that no server has, for check --live; a
// tool that is switched off is one that its server has.
func TestStatusNamesRulesWithoutATool(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"    tools: {look: {enabled: false}}\nguard: {rules: [{tools: [kil], action: deny}, {tools: [kill, look], action: deny}]}\n", nil)
	if _, body := p.get("/status"); strings.Count(body, "has a tool") != 1 || !strings.Contains(body, `has a tool \"kil\"`) {
		t.Errorf("%s", body[strings.Index(body, `"guard"`):][:600])
	}
}
