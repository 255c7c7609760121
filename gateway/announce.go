package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// announce tells guard.webhook of an approval that was asked for or decided: who
// wants to call which tool, and the page where those who may answer see the
// arguments. The message itself has none of them.
func (g *Gateway) announce(a *writeguard.Approval) {
	event := "decided"
	if a.State == writeguard.Pending {
		event = "requested"
	}
	to, wanted := g.announces(event)
	if !wanted {
		return
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

// announces tells where events of that kind are told, if they are.
func (g *Gateway) announces(event string) (config.Webhook, bool) {
	to := g.settings().cfg.Guard.Webhook
	return to, to.URL != "" && (len(to.Events) == 0 || slices.Contains(to.Events, event))
}

// plain is text from others for a chat. Chats read <…> and & as commands, such
// as one that calls everybody.
func plain(s string, most int) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(writeguard.Visible(bounded(s, most)))
}

// announcePlan tells guard.webhook of a plan that was made, or that somebody
// (by) has decided on, wholly or in part. Like announce it holds no arguments.
func (g *Gateway) announcePlan(plan *writeguard.Plan, progress *writeguard.Progress, by *auth.Principal) {
	event := "decided"
	if by == nil {
		event = "requested"
	}
	to, wanted := g.announces(event)
	if !wanted {
		return
	}
	servers := plan.Servers()
	groups, users := []string{}, []string{}
	add := func(list []string, more ...string) []string {
		for _, s := range more {
			if !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		return list
	}
	destroy := 0
	for _, s := range plan.Steps {
		if s.Class == writeguard.Destructive {
			destroy++
		}
		if s.Approvers != nil {
			groups, users = add(groups, s.Approvers.Groups...), add(users, s.Approvers.Users...)
		}
	}
	state := progress.State(g.now())
	calls := plural(len(plan.Steps), "call")
	if destroy > 0 {
		calls += fmt.Sprintf(" (%d destructive)", destroy)
	}
	on, who := plain(strings.Join(servers, ", "), 200), plain(plan.UserName, 100)
	text := fmt.Sprintf("An agent of %s has a plan of %s on %s. Decide before %s: %s", who, calls, on, progress.Expires.UTC().Format("15:04 MST"), g.planURL(plan.ID))
	if by != nil {
		n := progress.Count()
		text = fmt.Sprintf("Plan of %s on %s for %s: %d approved, %d removed, %d open, last by %s. %s", calls, on, who, n[writeguard.StepApproved], n[writeguard.StepRemoved], n[writeguard.StepOpen], plain(by.Name, 100), g.planURL(plan.ID))
	}
	body := map[string]any{"text": text, "event": "plan." + event, "plan": plan.ID, "state": state, "steps": len(plan.Steps), "servers": servers, "class": plan.Class(),
		"user": plan.User, "url": g.planURL(plan.ID), "expires": progress.Expires.UTC()}
	if len(groups)+len(users) > 0 {
		body["approvers"] = map[string]any{"groups": groups, "users": users}
	}
	g.hook.Send(to, plan.ID, wire.Encode(body))
}
