package config

import (
	"fmt"
	"net/url"
	"regexp"
)

func (v *validator) guard() {
	g := v.c.Guard
	names := map[string]int{}
	for i, r := range g.Rules {
		base := fmt.Sprintf("guard.rules[%d]", i)
		if v.isBroken(base) {
			continue
		}
		if r.Action == "" {
			v.report(base+".action", "is required; write allow, deny, approve or plan")
		}
		if first, dup := names[r.Name]; dup && r.Name != "" {
			v.report(base+".name", "%s is already the name of guard.rules[%d]; give each rule its own", quote(r.Name), first)
		} else {
			names[r.Name] = i
		}
		for j, s := range r.Servers {
			if path := fmt.Sprintf("%s.servers[%d]", base, j); !hasGlob(s) && !v.isBroken(path) {
				v.serverRef(path, s)
			}
		}
		if len(r.Servers)+len(r.Tools)+len(r.Class)+len(r.Groups)+len(r.Users)+len(r.Client)+len(r.Mode) == 0 && r.When == "" && i < len(g.Rules)-1 {
			v.warn(base, "this rule matches every call, so the rules after it are never reached")
		}
		v.terms(base, r)
	}
	for i, f := range g.Filters {
		v.filter(fmt.Sprintf("guard.filters[%d]", i), f)
	}
	v.webhook(g.Webhook)
	if g.Observe {
		v.warn("guard.observe", "the guard only observes: rules and filters stop nothing, every call runs; remove it to enforce them")
	}
	if g.AskTimeout > g.ApprovalExpires && !v.isBroken("guard.approval_expires") {
		v.report("guard.ask_timeout", "%s is longer than guard.approval_expires (%s); shorten it or raise the other", short(g.AskTimeout), short(g.ApprovalExpires))
	}
}

func (v *validator) webhook(w Webhook) {
	if !v.has("guard.webhook") || v.isBroken("guard.webhook") {
		return
	}
	if w.URL == "" && !v.isBroken("guard.webhook.url") {
		v.report("guard.webhook.url", "is required; write the address that is to be told of approvals")
	} else if u, err := url.Parse(w.URL.Reveal()); w.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		v.report("guard.webhook.url", "is no http or https URL; write it like https://chat.example.com/hooks/…")
	}
	if len(w.Secret) < 16 && !v.isBroken("guard.webhook.secret") {
		v.report("guard.webhook.secret", "must have at least 16 characters: the receiver tells by it that a message is the portal's; make one with openssl rand -hex 32")
	}
}

// terms checks what a rule says besides whom it matches.
func (v *validator) terms(base string, r Rule) {
	who := len(r.Approvers.Groups)+len(r.Approvers.Users) > 0
	if r.Action != "approve" && !v.isBroken(base+".action") {
		for key, given := range map[string]bool{"approvers": who || r.Approvers.Requester, "via": r.Via != "", "grant": r.Grant != 0} {
			switch {
			case !given || r.Action == "plan" && key != "grant":
			case key == "grant":
				v.report(base+"."+key, "is only for rules with action: approve; remove it or change the action")
			default:
				v.report(base+"."+key, "is only for rules with action: approve or plan; remove it or change the action")
			}
		}
	}
	if r.Action == "deny" && r.Budget != (Budget{}) && !v.isBroken(base+".budget") {
		v.report(base+".budget", "a rule that denies lets nothing through to count; remove it or change the action")
	}
	if v.has(base+".approvers") && !who && !v.isBroken(base+".approvers") {
		v.report(base+".approvers", "names nobody; write groups or users, or remove it: then the user whose agent asks answers")
	}
	if r.Via == "client" && who && !r.Approvers.Requester {
		v.report(base+".via", "client asks the user whose agent calls, who is not among the approvers; write web, or approvers.requester: true")
	}
}

func (v *validator) filter(base string, f Filter) {
	if v.isBroken(base) {
		return
	}
	if f.Action == "" {
		v.report(base+".action", "is required; write block or redact")
	}
	if len(f.Detect) == 0 && f.Pattern == "" {
		v.report(base, "looks for nothing; write detect or pattern")
	}
	if f.Pattern != "" && !v.isBroken(base+".pattern") {
		switch re, err := regexp.Compile(f.Pattern); {
		case err != nil:
			v.report(base+".pattern", "is no regular expression (%v); it is RE2, see https://github.com/google/re2/wiki/Syntax", err)
		case re.MatchString(""):
			v.report(base+".pattern", "matches the empty text, so everywhere; make it match something")
		}
	}
	for j, s := range f.Servers {
		if path := fmt.Sprintf("%s.servers[%d]", base, j); !hasGlob(s) && !v.isBroken(path) {
			v.serverRef(path, s)
		}
	}
}
