package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// maxCallRows is how many calls of a run are told one by one. Of more, each tool
// has one row.
const maxCallRows = 20

// callRow is what goes back of one call, or of all calls to one tool.
type callRow struct {
	Tool string `json:"tool"`

	Outcome string `json:"outcome,omitempty"` // of one: ok, failed, in_flight (outcome unknown), not_started, planned (not sent)
	IDs     string `json:"ids,omitempty"`     // of what it made or changed
	Error   string `json:"error,omitempty"`

	Calls      int      `json:"calls,omitempty"` // of all: how many, and how they came out
	OK         int      `json:"ok,omitempty"`
	Failed     int      `json:"failed,omitempty"`
	InFlight   int      `json:"in_flight,omitempty"`
	NotStarted int      `json:"not_started,omitempty"`
	Planned    int      `json:"planned,omitempty"`
	Errors     []string `json:"errors,omitempty"`

	Millis float64 `json:"ms"`
	Bytes  int     `json:"bytes"`
}

// callRows lists the calls of a run in the order in which it made them.
func callRows(calls []codemode.CallRecord, made []madeCall) []callRow {
	if len(calls) > maxCallRows {
		return summarize(calls)
	}
	out := make([]callRow, 0, len(calls))
	for i, c := range calls {
		r := callRow{Tool: c.Tool, Outcome: outcomeOf(c.Status), Error: bounded(c.Error, 160), Millis: tenths(c.Millis), Bytes: c.BytesOut}
		if i < len(made) && made[i].Tool == c.Tool {
			r.IDs = made[i].IDs
		}
		out = append(out, r)
	}
	return out
}

func outcomeOf(status string) string {
	switch status {
	case "ok", inFlight, "not_started", planned:
		return status
	}
	return "failed"
}

func tenths(ms float64) float64 { return float64(int(ms*10)) / 10 }

// summarize groups calls by tool, in order of first use, with at most three
// different error texts each.
func summarize(calls []codemode.CallRecord) []callRow {
	var out []callRow
	at := map[string]int{}
	for _, c := range calls {
		i, ok := at[c.Tool]
		if !ok {
			i = len(out)
			at[c.Tool] = i
			out = append(out, callRow{Tool: c.Tool})
		}
		s := &out[i]
		s.Calls++
		s.Millis += c.Millis
		s.Bytes += c.BytesOut
		switch outcomeOf(c.Status) {
		case "ok":
			s.OK++
		case inFlight:
			s.InFlight++
		case "not_started":
			s.NotStarted++
		case planned:
			s.Planned++
		default:
			s.Failed++
		}
		if text := bounded(c.Error, 160); text != "" && !slices.Contains(s.Errors, text) && len(s.Errors) < 3 {
			s.Errors = append(s.Errors, text)
		}
	}
	for i := range out {
		out[i].Millis = tenths(out[i].Millis)
	}
	return out
}

// callsText is the list of calls as text, a line for each row.
func callsText(rows []callRow) string {
	var lines []string
	for i, r := range rows {
		if i == maxCallRows {
			lines = append(lines, fmt.Sprintf("and %d more tools", len(rows)-i))
			break
		}
		lines = append(lines, r.text())
	}
	return strings.Join(lines, "\n")
}

func (r callRow) text() string {
	var how []string
	what := r.Tool
	if r.Calls == 0 {
		how = append(how, map[string]string{"ok": "ok", "failed": "failed", inFlight: "in flight (outcome unknown)", "not_started": "not started", planned: "planned, not sent"}[r.Outcome])
		if r.Error != "" {
			how[0] += " [" + r.Error + "]"
		}
	} else {
		what += fmt.Sprintf(" ×%d", r.Calls)
		for _, x := range []struct {
			n    int
			what string
		}{{r.OK, "ok"}, {r.Failed, "failed"}, {r.InFlight, "in flight (outcome unknown)"}, {r.NotStarted, "not started"}, {r.Planned, "planned, not sent"}} {
			if x.n > 0 {
				how = append(how, fmt.Sprintf("%d %s", x.n, x.what))
			}
		}
		if len(r.Errors) > 0 {
			how[len(how)-1] += " [" + strings.Join(r.Errors, "; ") + "]"
		}
	}
	return fmt.Sprintf("%s: %s, %.0f ms, %s", what, strings.Join(how, ", "), r.Millis, size(r.Bytes))
}

func size(n int) string {
	if n < 10_000 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d KB", n/1000)
}

// changes lists the calls that changed something, or may have, with the ids of
// what they made: a script that returns nothing must not lose them.
func changes(made []madeCall) []string {
	const most = 20
	var out []string
	times, more := map[string]int{}, 0
	for _, m := range made {
		if !m.mayHaveChanged() {
			continue
		}
		what := m.Tool + " " + m.Status
		if m.IDs != "" {
			what = m.Tool + " → " + m.IDs
		}
		switch times[what]++; {
		case times[what] > 1:
		case len(out) == most:
			delete(times, what)
			more++
		default:
			out = append(out, what)
		}
	}
	for i, what := range out {
		if n := times[what]; n > 1 {
			out[i] = fmt.Sprintf("%s ×%d", what, n)
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// idNames are the members by which a thing is found again, best first.
var idNames = []string{"id", "number", "key", "uuid", "sha", "ts", "message_id", "slug", "name", "url", "html_url"}

// notMade are members that name what a call did not make or change.
var notMade = map[string]bool{"error": true, "errors": true, "failed": true, "failures": true, "rejected": true, "skipped": true, "warnings": true}

// idsOf finds the ids in the result of a call that made or changed something.
func idsOf(result json.RawMessage) string {
	const most = 256 << 10 // bytes of a result that is looked into
	if len(result) > most {
		return ""
	}
	value, ok := codemode.Plain(result)
	if !ok {
		return ""
	}
	if len(value) > 0 && value[0] == '"' {
		var s string
		if json.Unmarshal(value, &s) != nil {
			return ""
		}
		return bounded(writeguard.Visible(strings.Join(strings.Fields(s), " ")), 80)
	}
	return bounded(idsIn(value, 2), 200)
}

func idsIn(value json.RawMessage, depth int) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || depth < 0 {
		return ""
	}
	if value[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return ""
		}
		var out []string
		for i, v := range list {
			if i == 5 {
				out = append(out, fmt.Sprintf("and %d more", len(list)-i))
				break
			}
			if s := idsIn(v, depth-1); s != "" {
				out = append(out, s)
			}
		}
		return strings.Join(out, ", ")
	}
	var o map[string]json.RawMessage
	if value[0] != '{' || json.Unmarshal(value, &o) != nil {
		return ""
	}
	scalar := func(k string) string {
		v := o[k]
		var s string
		if len(v) == 0 || v[0] == '{' || v[0] == '[' || string(v) == "null" {
			return ""
		}
		if json.Unmarshal(v, &s) != nil {
			s = string(v)
		}
		return k + " " + bounded(writeguard.Visible(s), 80)
	}
	var out []string
	for _, k := range idNames {
		if s := scalar(k); s != "" && len(out) < 2 {
			out = append(out, s)
		}
	}
	var rest []string
	for k := range o {
		if strings.HasSuffix(k, "_id") || strings.HasSuffix(k, "Id") {
			rest = append(rest, k)
		}
	}
	slices.Sort(rest)
	for _, k := range rest {
		if s := scalar(k); s != "" && len(out) < 3 && !slices.Contains(idNames, k) {
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		return strings.Join(out, ", ")
	}
	var inner []string
	for k := range o {
		if !notMade[strings.ToLower(k)] {
			inner = append(inner, k)
		}
	}
	slices.Sort(inner)
	for _, k := range inner {
		if s := idsIn(o[k], depth-1); s != "" {
			return k + ": " + s
		}
	}
	return ""
}
