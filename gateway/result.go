package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// outcomeResult is the CallToolResult of a run: first the value alone, then
// console and calls in one short text; structuredContent has the same parts, as
// resultSchema declares them.
func (g *Gateway) outcomeResult(ctx context.Context, r *request, made []madeCall, out *codemode.Outcome) json.RawMessage {
	calls := callRows(out.Calls, made)
	o := wire.Object{}
	var first string
	var notes []string
	isError := out.Error != nil
	if isError {
		first = errorLine(out.Error) + madeSentence(made)
		o = append(o, wire.Field{Key: "status", Value: json.RawMessage(`"error"`)}, wire.Field{Key: "error", Value: errorValue(out.Error)})
	} else {
		s := g.shaped(ctx, r, out.Value, out.ValueCut)
		first = valueText(s.value)
		o = append(o, wire.Field{Key: "status", Value: json.RawMessage(`"ok"`)})
		if s.value != nil {
			o = append(o, wire.Field{Key: "value", Value: s.value})
		}
		if s.note != "" {
			o = append(o, wire.Field{Key: "cut", Value: wire.Quote(s.note)})
			notes = append(notes, s.note)
		}
		if s.id != "" {
			o = append(o, wire.Field{Key: "result", Value: wire.Quote(s.id)})
		}
	}
	if len(out.Logs) > 0 {
		o = append(o, wire.Field{Key: "logs", Value: wire.Encode(out.Logs)})
		notes = append(notes, "console:\n"+strings.Join(out.Logs, "\n"))
		if out.LogsCut > 0 {
			notes = append(notes, fmt.Sprintf("(%d more console lines were cut, the limit is %d bytes: print less, or return what matters)", out.LogsCut, r.set.cfg.Code.MaxLogs))
		}
	}
	if len(calls) > 0 {
		o = append(o, wire.Field{Key: "calls", Value: wire.Encode(calls)})
		notes = append(notes, "calls:\n"+callsText(calls))
	}
	if changed := changes(made); len(changed) > 0 {
		o = append(o, wire.Field{Key: "changed", Value: wire.Encode(changed)})
		if !isError {
			notes = append(notes, "changed: "+strings.Join(changed, "; "))
		}
	}
	content := []json.RawMessage{textBlock(first)}
	blocks, dropped := boundBlocks(out.Content, r.set.cfg.Code.ResultTokens, r.set.cfg.Code.MaxContent)
	content = append(content, blocks...)
	if dropped != "" {
		notes = append(notes, dropped)
	}
	if len(notes) > 0 {
		content = append(content, textBlock(strings.Join(notes, "\n")))
	}
	res := wire.Object{{Key: "content", Value: wire.Encode(content)}, {Key: "structuredContent", Value: o.Bytes()}}
	if isError {
		res = append(res, wire.Field{Key: "isError", Value: json.RawMessage("true")})
	}
	return res.Bytes()
}

// shapedValue is a value within the budget of an answer.
type shapedValue struct {
	value json.RawMessage
	note  string // what is left out, and how to get it; empty: nothing
	id    string // of the whole value, if it is kept
}

// shaped cuts a value to the budget and keeps the whole for later code. beyond
// says that it was cut before, since it was more than a run may return.
func (g *Gateway) shaped(ctx context.Context, r *request, value json.RawMessage, beyond bool) shapedValue {
	short, cut, lost := codemode.Shape(value, r.set.cfg.Code.ResultTokens)
	s := shapedValue{value: short}
	if !cut && !beyond {
		return s
	}
	s.note = cutNote(lost, beyond)
	if r.set.cfg.Code.Mode == "off" {
		s.note += " Ask for less: fewer rows or fields, or page by page."
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := g.kept.put(ctx, r.who.ID, g.readBy(ctx, r.grant), value)
	if err != nil {
		g.log.Warn("the whole value of an answer could not be kept", "error", err)
		s.note += " The rest could not be kept (" + keptProblem(err) + "): return less next time, filter, count or summarise in the code."
		return s
	}
	s.id = id
	s.note += fmt.Sprintf(" The whole is kept for %d minutes: code reads it with await codemode.result(%q). Filter, count or summarise it there.", int(valueKeptFor.Minutes()), id)
	return s
}

func keptProblem(err error) string {
	if errors.Is(err, store.ErrUnavailable) {
		return "the store cannot be reached"
	}
	return bounded(err.Error(), 120)
}

func errorValue(e *codemode.ScriptError) json.RawMessage {
	return wire.Encode(map[string]any{"kind": e.Kind, "name": e.Name, "message": bounded(e.Message, 4000), "line": e.Line, "column": e.Column, "code": e.Code})
}

// maxBlocks is how many content blocks code can return beside its value.
const maxBlocks = 20

// boundBlocks keeps content blocks within bounds: texts within the budget,
// images and sounds (base64, all together) within a size, and says what was
// left out.
func boundBlocks(blocks []json.RawMessage, budget, media int) (kept []json.RawMessage, note string) {
	left, cut := budget, 0
	for _, b := range blocks {
		o, err := wire.ParseObject(b)
		if err != nil || len(kept) == maxBlocks {
			cut++
			continue
		}
		if t := o.String("type"); t == "image" || t == "audio" {
			if media -= len(b); media < 0 {
				cut++
				continue
			}
			kept = append(kept, b)
			continue
		}
		if res, err := wire.ParseObject(o.Get("resource")); err == nil && res.Get("text") != nil && left > 0 {
			text, shorter := codemode.ShapeText(res.String("text"), left)
			if shorter {
				cut++
				b = o.Set("resource", res.SetString("text", text).Bytes()).Bytes()
			}
		}
		if left -= codemode.EstimateTokens(b); left < -budget/10 {
			cut++
			continue
		}
		kept = append(kept, b)
	}
	if cut > 0 {
		note = fmt.Sprintf("%d of %d content blocks were too large and were shortened or left out. Return less: read them in the code and return what matters.", cut, len(blocks))
	}
	return kept, note
}

// cutNote says what the value lost to the budget.
// Beyond what a run may return at all, not even the size is known.
func cutNote(c codemode.Cut, beyond bool) string {
	if beyond {
		return fmt.Sprintf("The value was larger than a run may return and was cut: about %d bytes are shown.", c.Kept)
	}
	var lost []string
	for _, x := range []struct {
		n    int
		what string
	}{{c.Items, "list items"}, {c.Fields, "fields"}, {c.Characters, "characters of texts"}} {
		if x.n > 0 {
			lost = append(lost, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return fmt.Sprintf("The value was too large and was cut: %s are left out, %d of %d bytes are shown.", strings.Join(lost, ", "), c.Kept, c.Bytes)
}

func textBlock(s string) json.RawMessage {
	return wire.Encode(map[string]string{"type": "text", "text": s})
}

// valueText is a string as it is, any other value as JSON.
func valueText(v json.RawMessage) string {
	if v == nil {
		return "undefined (the code returned nothing: end it with return <value>)"
	}
	var s string
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func errorLine(e *codemode.ScriptError) string {
	s := e.Message
	if e.Name != "" && !strings.HasPrefix(s, e.Name) {
		s = e.Name + ": " + s
	}
	s = bounded(s, 4000)
	if e.Line > 0 {
		s += fmt.Sprintf(" (line %d, column %d of your code)", e.Line, e.Column)
	}
	return s
}

// pausedResult tells the agent that the run waits, for what, and what to do.
func (g *Gateway) pausedResult(x *run, list map[string]*writeguard.Approval, logins map[string]*pendingLogin) json.RawMessage {
	type row struct {
		URL       string          `json:"url"`
		Server    string          `json:"server"`
		Tool      string          `json:"tool"`
		Class     string          `json:"class"`
		Arguments json.RawMessage `json:"arguments"`
	}
	ordered := make([]*writeguard.Approval, 0, len(list))
	for _, a := range list {
		ordered = append(ordered, a)
	}
	sort.Slice(ordered, func(i, j int) bool { return ordered[i].Created.Before(ordered[j].Created) })
	rows := []row{}
	for _, a := range ordered {
		args := a.Arguments
		if len(args) > 1000 {
			args = wire.Quote(fmt.Sprintf("%d bytes, shown on the page", len(args)))
		}
		rows = append(rows, row{g.approvalURL(a), a.Server, a.Tool, string(a.Class), args})
	}
	lines, signIns := loginLines(logins)
	if len(rows) == 0 {
		return g.pausedForLogin(x, lines, signIns)
	}
	where := rows[0].URL
	if len(rows) > 1 {
		where = g.runURL(x.id)
	}
	if lines != "" {
		where += ", and the addresses to sign in,"
	}
	next := fmt.Sprintf("Ask the user to open %s and decide. Then call this tool again with only {\"resume\":%q}.", where, x.id)
	var b strings.Builder
	need := "calls of the code need the user's approval and were not sent"
	if len(rows) == 1 {
		need = "call of the code needs the user's approval and was not sent"
	}
	fmt.Fprintf(&b, "Paused: %d %s:\n", len(rows), need)
	for i, r := range rows {
		if i == 20 {
			fmt.Fprintf(&b, "- and %d more\n", len(rows)-i)
			break
		}
		fmt.Fprintf(&b, "- %s on server %s (%s) %s", r.Tool, r.Server, r.Class, bounded(briefly(ordered[i].Arguments), 300))
		if other := ordered[i].Run; other != "" && other != x.id {
			fmt.Fprintf(&b, " (%s waits with an equal call: one approval sends one of the two)", other)
		}
		b.WriteByte('\n')
	}
	if len(rows) >= codemode.MostAside {
		b.WriteString("Further calls that the code has started are asked for when these are decided.\n")
	}
	b.WriteString(lines)
	until := g.now().Add(x.req.set.cfg.Code.PausedFor)
	if g.opt.Vault != nil && x.recording.whole() {
		until = g.now().Add(keptFor) // in the store, if not in memory
	}
	if e := ordered[0].Expires; e.Before(until) {
		until = e
	}
	if x.tell(list) {
		next += " (In other code, start such calls together with Promise.all: then one page decides them all.)"
	}
	fmt.Fprintf(&b, "%s The code waits until %s; do not run it again.", next, until.UTC().Format("15:04 MST"))
	said := map[string]any{"status": "paused", "run": x.id, "approvals": rows[:min(len(rows), 50)], "next": next}
	if signIns != nil {
		said["sign_ins"] = signIns
	}
	body := wire.Encode(said)
	return wire.Object{{Key: "content", Value: wire.Encode([]json.RawMessage{textBlock(b.String())})}, {Key: "structuredContent", Value: body}}.Bytes()
}

// briefly shows arguments with their long texts cut, so that none hides those
// that follow.
func briefly(args json.RawMessage) string {
	const most = 80
	o, err := wire.ParseObject(args)
	if err != nil {
		return string(args)
	}
	for i, f := range o {
		var s string
		if len(f.Value) > most && json.Unmarshal(f.Value, &s) == nil {
			o[i].Value = wire.Quote(fmt.Sprintf("%s (%d characters)", bounded(s, most), utf8.RuneCountInString(s)))
		}
	}
	return string(o.Bytes())
}

// pausedForLogin is pausedResult when only sign-ins are waited for.
func (g *Gateway) pausedForLogin(x *run, lines string, signIns []map[string]string) json.RawMessage {
	until := g.now().Add(min(x.req.set.cfg.Code.PausedFor, 15*time.Minute))
	next := fmt.Sprintf("Ask the user to open the address and sign in. Then call this tool again with only {\"resume\":%q}.", x.id)
	text := fmt.Sprintf("Paused: calls of the code need the user signed in at a server and were not sent:\n%s%s The code waits until %s; do not run it again.", lines, next, until.UTC().Format("15:04 MST"))
	body := wire.Encode(map[string]any{"status": "paused", "run": x.id, "sign_ins": signIns, "next": next})
	return wire.Object{{Key: "content", Value: wire.Encode([]json.RawMessage{textBlock(text)})}, {Key: "structuredContent", Value: body}}.Bytes()
}
