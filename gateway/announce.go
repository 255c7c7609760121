package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// announce tells guard.webhook of an approval that was asked for or decided: who
// wants to call which tool, and the page where those who may answer see the
// arguments. The message itself has none of them.
func (g *Gateway) announce(a *writeguard.Approval) {
	set := g.settings()
	to := set.cfg.Guard.Webhook
	event := "decided"
	if a.State == writeguard.Pending {
		event = "requested"
	}
	if to.URL == "" || len(to.Events) > 0 && !slices.Contains(to.Events, event) {
		return
	}
	// Chats read <…> and & as commands, such as one that calls everybody.
	plain := func(s string, most int) string {
		return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(writeguard.Visible(bounded(s, most)))
	}
	who, tool := plain(a.UserName, 100), plain(a.Server+"/"+a.Tool, 200)
	text := fmt.Sprintf("An agent of %s wants to call %s (%s). Answer before %s: %s", who, tool, a.Class, a.Expires.UTC().Format("15:04 MST"), g.approvalURL(a))
	if event == "decided" {
		text = fmt.Sprintf("%s: %s for %s, by %s. %s", a.State, tool, who, plain(a.DeciderName, 100), g.approvalURL(a))
	}
	body := map[string]any{"text": text, "event": "approval." + event, "approval": a.ID, "state": a.State, "server": a.Server, "tool": a.Tool, "class": a.Class, "rule": a.Rule,
		"user": a.User, "url": g.approvalURL(a), "expires": a.Expires.UTC()}
	if a.Approvers != nil {
		body["approvers"] = map[string]any{"groups": a.Approvers.Groups, "users": a.Approvers.Users}
	}
	g.hook.Send(to, a.ID, wire.Encode(body))
}
