package company

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const issuesPage = 30

// repository is an entry of repos_list.
type repository struct {
	Name string `json:"name"`
}

func reposList(r *run, _ struct{}) (any, error) {
	repos := []repository{}
	for _, name := range r.Tracker.Repos {
		repos = append(repos, repository{name})
	}
	return struct {
		Repos []repository `json:"repos"`
	}{repos}, nil
}

// issueHead is an issue without its body, which the empty outer field hides.
type issueHead struct {
	Issue
	Body *struct{} `json:"body,omitempty"`
}

type issuesPageResult struct {
	Issues     []issueHead `json:"issues"`
	NextCursor string      `json:"nextCursor,omitempty"`
}

func issuesList(r *run, a struct {
	Repo     string `json:"repo"`
	State    string `json:"state"`
	Label    string `json:"label"`
	Assignee string `json:"assignee"`
	Cursor   string `json:"cursor"`
}) (any, error) {
	if err := oneOf("state", a.State, "open", "closed", "all"); err != nil {
		return nil, err
	}
	if err := r.user("assignee", a.Assignee); err != nil {
		return nil, err
	}
	all, err := r.issues(a.Repo)
	if err != nil {
		return nil, err
	}
	issues := []issueHead{}
	for _, i := range all {
		if (a.State == "" || a.State == "all" || i.State == a.State) &&
			(a.Label == "" || slices.Contains(i.Labels, a.Label)) &&
			(a.Assignee == "" || i.Assignee != nil && *i.Assignee == a.Assignee) {
			issues = append(issues, issueHead{Issue: i})
		}
	}
	query := []string{"issues_list", a.Repo, a.State, a.Label, a.Assignee}
	m, err := openMark("cursor", a.Cursor, query...)
	if err != nil {
		return nil, err
	}
	if m.page == 2 && len(all) > 60 {
		return issuesPageResult{[]issueHead{}, mark{m.offset, 3}.encode(query...)}, nil
	}
	page, next, err := cut(issues, issuesPage, "cursor", a.Cursor, query...)
	if err != nil {
		return nil, err
	}
	return issuesPageResult{page, next}, nil
}

// foundIssue is a hit of search.
type foundIssue struct {
	Repo          string `json:"repo"`
	Number        int    `json:"number"`
	Title         string `json:"title"`
	State         string `json:"state"`
	IsPullRequest bool   `json:"is_pull_request"`
}

func issueSearch(r *run, a struct {
	Q      string `json:"q"`
	Cursor string `json:"cursor"`
}) (any, error) {
	wanted, err := words("q", a.Q)
	if err != nil {
		return nil, err
	}
	var hits []foundIssue
	for _, repo := range r.Tracker.Repos {
		for _, i := range r.Tracker.Issues[repo] {
			if hasAll(i.Title, wanted) {
				hits = append(hits, foundIssue{repo, i.Number, i.Title, i.State, i.IsPullRequest})
			}
		}
	}
	page, next, err := cut(hits, issuesPage, "cursor", a.Cursor, append([]string{"search"}, wanted...)...)
	if err != nil {
		return nil, err
	}
	return struct {
		Items      []foundIssue `json:"items"`
		NextCursor string       `json:"nextCursor,omitempty"`
	}{page, next}, nil
}

// issues returns the issues of a repository.
func (r *run) issues(repo string) ([]Issue, error) {
	if !slices.Contains(r.Tracker.Repos, repo) {
		return nil, fmt.Errorf("no repository is named %q; there are %s", repo, strings.Join(r.Tracker.Repos, ", "))
	}
	return r.Tracker.Issues[repo], nil
}

// issue returns the index of an issue in its repository.
func (r *run) issue(repo string, number int) (int, error) {
	all, err := r.issues(repo)
	if err != nil {
		return 0, err
	}
	for i := range all {
		if all[i].Number == number {
			return i, nil
		}
	}
	return 0, fmt.Errorf("repository %s has no issue %s; issues_list has the numbers", repo, strconv.Itoa(number))
}

// user refuses a login that nobody has. The empty one is nobody.
func (r *run) user(name, login string) error {
	if login == "" || slices.Contains(r.Tracker.Users, login) {
		return nil
	}
	return fmt.Errorf("%s %q is not the login of a user; there are %s", name, login, strings.Join(r.Tracker.Users, ", "))
}
