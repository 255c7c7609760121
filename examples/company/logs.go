package company

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const logsPage = 500

// partialLine ends the answer to the first query for auth in a run, which leaves
// out the shards it names.
const partialLine = `{"partial":true,"failed_shards":[1,3]}`

// logsQuery answers NDJSON: the matching lines as they are in the log, then
// what there is to say about the answer.
func (c *Company) logsQuery(_ context.Context, r *run, raw json.RawMessage) (any, error) {
	a, err := decode[struct {
		Service   string `json:"service"`
		From      string `json:"from"`
		To        string `json:"to"`
		Level     string `json:"level"`
		PageToken string `json:"page_token"`
	}](raw)
	if err != nil {
		return nil, err
	}
	if a.Service == "" {
		return nil, errors.New("service must not be empty")
	}
	if err := oneOf("service", a.Service, "api", "auth", "billing", "edge", "worker"); err != nil {
		return nil, err
	}
	if err := oneOf("level", a.Level, "info", "warn", "error"); err != nil {
		return nil, err
	}
	from, err := instant("from", a.From)
	if err != nil {
		return nil, err
	}
	to, err := instant("to", a.To)
	if err != nil {
		return nil, err
	}
	if !from.Before(to) {
		return nil, fmt.Errorf("from %s must be before to %s, which is exclusive", a.From, a.To)
	}
	query := []string{"logs_query", a.Service, a.From, a.To, a.Level}
	// The offset is the place in the whole log, so that the pages after a
	// partial one are whole.
	m, err := openMark("page_token", a.PageToken, query...)
	if err != nil {
		return nil, err
	}
	lines, err := c.logs()
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	partial := a.Service == "auth" && r.firstAuthQuery()

	var out strings.Builder
	found := 0
	for n := min(m.offset, len(lines)); n < len(lines); n++ {
		l := &lines[n]
		if l.service != a.Service || l.at.Before(from) || !l.at.Before(to) || a.Level != "" && l.level != a.Level ||
			partial && (l.shard == 1 || l.shard == 3) {
			continue
		}
		if found == logsPage {
			fmt.Fprintf(&out, "{\"next_page_token\":%q}\n", mark{n, m.page + 1}.encode(query...))
			break
		}
		found++
		out.Write(l.raw)
		out.WriteByte('\n')
	}
	if partial {
		out.WriteString(partialLine + "\n")
	}
	return plainText(out.String()), nil
}

func (r *run) firstAuthQuery() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.authQueries++
	return r.faults.authQueries == 1
}

// instant reads an RFC 3339 instant or a date, which is its midnight in UTC.
func instant(name, text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %.80q is not an instant; write it as 2026-11-29T00:00:00Z", name, text)
}
