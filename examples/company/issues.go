package company

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	issueGetLatency  = 150 * time.Millisecond
	issueGetInFlight = 8
)

// issueResult is an issue with its body and the repository it is of.
type issueResult struct {
	Repo string `json:"repo"`
	Issue
}

type issueRef struct {
	Repo   string `json:"repo"`
	Number int    `json:"number"`
}

// issueGet is not run under the lock, since several calls are in flight at once.
func (c *Company) issueGet(ctx context.Context, r *run, raw json.RawMessage) (any, error) {
	a, err := decode[issueRef](raw)
	if err != nil {
		return nil, err
	}
	if !r.enterIssueGet() {
		return nil, errors.New("too many concurrent requests")
	}
	defer r.leaveIssueGet()
	if err := c.sleep(ctx, issueGetLatency); err != nil {
		return nil, fmt.Errorf("the call ended before the issue was read: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.issue(a.Repo, a.Number)
	if err != nil {
		return nil, err
	}
	return issueResult{a.Repo, r.Tracker.Issues[a.Repo][i]}, nil
}

func (r *run) enterIssueGet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults.issueGets >= issueGetInFlight {
		return false
	}
	r.faults.issueGets++
	return true
}

func (r *run) leaveIssueGet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults.issueGets--
}

func issueCreate(r *run, a struct {
	Repo   string   `json:"repo"`
	Title  string   `json:"title"`
	Body   string   `json:"body"`
	Labels []string `json:"labels"`
}) (any, error) {
	all, err := r.issues(a.Repo)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(a.Title) == "" {
		return nil, errors.New("title must not be empty")
	}
	number := r.numbers[a.Repo] + 1
	for _, i := range all {
		number = max(number, i.Number+1)
	}
	r.numbers[a.Repo] = number
	issue := Issue{
		Number:    number,
		Title:     a.Title,
		State:     "open",
		Labels:    append([]string{}, a.Labels...),
		Author:    "api",
		CreatedAt: Now().Format(time.RFC3339),
		Body:      a.Body,
	}
	r.Tracker.Issues[a.Repo] = append(all, issue)
	r.faults.issueCreates++
	if r.faults.issueCreates == 3 {
		return nil, errors.New("upstream timeout")
	}
	return issueResult{a.Repo, issue}, nil
}

func issueUpdate(r *run, a struct {
	issueRef
	State    *string  `json:"state"`
	Assignee *string  `json:"assignee"`
	Labels   []string `json:"labels"`
}) (any, error) {
	at, err := r.issue(a.Repo, a.Number)
	if err != nil {
		return nil, err
	}
	if a.State == nil && a.Assignee == nil && a.Labels == nil {
		return nil, errors.New("nothing to change: give state, assignee or labels")
	}
	issue := r.Tracker.Issues[a.Repo][at]
	if a.State != nil {
		switch *a.State {
		case issue.State:
		case "open":
			issue.State, issue.ClosedAt = "open", nil
		case "closed":
			now := Now().Format(time.RFC3339)
			issue.State, issue.ClosedAt = "closed", &now
		default:
			return nil, fmt.Errorf("state %q is unknown; use open or closed", *a.State)
		}
	}
	if a.Assignee != nil {
		if err := r.user("assignee", *a.Assignee); err != nil {
			return nil, err
		}
		issue.Assignee = a.Assignee
		if *a.Assignee == "" {
			issue.Assignee = nil
		}
	}
	if a.Labels != nil {
		issue.Labels = a.Labels
	}
	r.Tracker.Issues[a.Repo][at] = issue
	return issueResult{a.Repo, issue}, nil
}

func issueDelete(r *run, a issueRef) (any, error) {
	at, err := r.issue(a.Repo, a.Number)
	if err != nil {
		return nil, err
	}
	r.Tracker.Issues[a.Repo] = slices.Delete(r.Tracker.Issues[a.Repo], at, at+1)
	r.numbers[a.Repo] = max(r.numbers[a.Repo], a.Number)
	return struct {
		issueRef
		Deleted bool `json:"deleted"`
	}{a, true}, nil
}
