package gateway

import (
	"fmt"
	"runtime/debug"

	"github.com/mcp-portal/mcp-portal/upstreams"
)

// contain, deferred, makes a panic while a call is made the failure of that
// call: calls run in goroutines of their own, where a panic would end the
// process and everybody's calls with it. Whether the server got the call is not
// known then.
func (g *Gateway) contain(server, tool string, err *error) {
	v := recover()
	if v == nil {
		return
	}
	g.log.Error("a call failed inside the portal: please report this", "server", server, "tool", tool, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	*err = &upstreams.CallError{Server: server, Tool: tool, Sent: true, Problem: upstreams.Problem{Kind: upstreams.KindProtocol,
		Message: "an error inside the portal, which its log has: tell the administrator"}}
}
