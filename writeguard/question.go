package writeguard

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/wire"
)

// questionArguments bounds the arguments inside a form, in characters. More
// does not fit any client's dialog; the portal's page shows all.
const questionArguments = 4000

// answerSchema is the form: one flat enum with titles, which every revision of
// the protocol that has elicitation allows, and which has no default, so that
// nothing is approved by pressing Enter.
const answerSchema = `{"type":"object","properties":{"decision":{"type":"string","title":"Decision",` +
	`"description":"Approve sends exactly this call, once.",` +
	`"enum":["approve","deny"],"enumNames":["Approve this one call","Deny"]}},"required":["decision"]}`

// Question is what the user is asked in the client's form: the message and the
// requestedSchema of elicitation/create. ParseAnswer reads what comes back.
func Question(a *Approval) (message string, requestedSchema json.RawMessage) {
	var b strings.Builder
	fmt.Fprintf(&b, "Approve this call? Nothing has been sent yet.\n\n")
	fmt.Fprintf(&b, "Server: %s\nTool: %s\nClass: %s (%s)\n", Visible(a.Server), Visible(a.Tool), a.Class, Visible(a.Why))
	fmt.Fprintf(&b, "Asked because: %s\n", Visible(a.Reason))
	if a.Mode == Code {
		fmt.Fprintf(&b, "From: a script (run %s)\n", Visible(a.Run))
	}
	fmt.Fprintf(&b, "\nArguments:\n")
	args := VisibleJSON(a.Arguments)
	if Fits(a) {
		b.WriteString(args)
	} else {
		total := utf8.RuneCountInString(args)
		b.WriteString(string([]rune(args)[:questionArguments]))
		fmt.Fprintf(&b, "\n[CUT: the first %d of %d characters. All of them are on the portal's approvals page, approval %s. Deny here if you have not read them there.]", questionArguments, total, a.ID)
	}
	fmt.Fprintf(&b, "\n\nApproving releases exactly this call with these arguments, once. The question ends at %s.", a.Expires.UTC().Format("15:04 UTC"))
	return b.String(), json.RawMessage(answerSchema)
}

// Fits reports whether Question shows all the arguments. Where it does not,
// the portal's page is the better way to ask.
func Fits(a *Approval) bool {
	return utf8.RuneCountInString(VisibleJSON(a.Arguments)) <= questionArguments
}

// ParseAnswer reads the result of an elicitation. Only the action "accept"
// with the decision "approve" approves; whatever else comes back does not, and
// reason says why in a sentence for the record and the agent.
func ParseAnswer(action string, content json.RawMessage) (approve bool, reason string) {
	switch action {
	case "accept":
	case "decline":
		return false, "The user declined."
	case "cancel":
		return false, "The user closed the question without an answer."
	default:
		return false, "The client's answer could not be understood, so it does not count as a yes."
	}
	o, err := wire.ParseObject(content)
	if err != nil {
		return false, "The client sent the form back without a decision, so it does not count as a yes."
	}
	n := 0
	for _, f := range o {
		if f.Key == "decision" {
			n++
		}
	}
	switch d := o.String("decision"); {
	case n == 1 && d == "approve":
		return true, "The user approved in the client."
	case n == 1 && d == "deny":
		return false, "The user denied."
	}
	return false, "The client sent the form back without a decision, so it does not count as a yes."
}

const planSchema = `{"type":"object","properties":{"decision":{"type":"string","title":"Decision",` +
	`"description":"Approve sends exactly these calls, once, in this order.",` +
	`"enum":["approve","deny"],"enumNames":["Approve the whole plan","Deny it"]}},"required":["decision"]}`

// PlanQuestion is what the user is asked about a whole plan in the client's
// form, or false: it does not fit into one. shown gives the arguments of a step
// as people read them. ParseAnswer reads what comes back.
func PlanQuestion(p *Plan, shown func(i int) json.RawMessage) (message string, requestedSchema json.RawMessage, ok bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "Apply this plan of %d calls? Nothing of it has been sent yet.\n", len(p.Steps))
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "\n%d. %s / %s (%s)\n%s\n", i+1, Visible(s.Server), Visible(s.Tool), s.Class, VisibleJSON(shown(i)))
		if utf8.RuneCountInString(b.String()) > questionArguments {
			return "", nil, false
		}
	}
	if p.Ends != "" {
		fmt.Fprintf(&b, "\nThe plan ends here because %s; there may be a further one.\n", Visible(p.Ends))
	}
	b.WriteString("\nApproving sends exactly these calls in this order, once, and stops at the first that fails. On the portal's page single steps can be removed.")
	return b.String(), json.RawMessage(planSchema), true
}
