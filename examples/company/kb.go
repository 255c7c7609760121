package company

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const articlesPage = 20

type articleHead struct {
	ID    string `json:"id"`
	Title string `json:"title"`
}

func articleCreate(r *run, a struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}) (any, error) {
	if strings.TrimSpace(a.Title) == "" {
		return nil, errors.New("title must not be empty")
	}
	article := Article{ID: r.nextID("art_"), Title: a.Title, Body: a.Body, CreatedAt: Now().Format(time.RFC3339)}
	r.KB.Articles = append(r.KB.Articles, article)
	r.faults.articles++
	if r.faults.articles == 5 {
		return nil, errors.New("gateway timeout")
	}
	// The body is not sent back: it can be large, and the caller has it.
	return struct {
		articleHead
		Bytes     int    `json:"bytes"`
		CreatedAt string `json:"created_at"`
	}{articleHead{article.ID, article.Title}, len(article.Body), article.CreatedAt}, nil
}

func articleGet(r *run, a struct {
	ID string `json:"id"`
}) (any, error) {
	for _, article := range r.KB.Articles {
		if article.ID == a.ID {
			return article, nil
		}
	}
	return nil, fmt.Errorf("no article has the id %q; articles_list has the ids", a.ID)
}

func articlesList(r *run, a struct {
	Cursor string `json:"cursor"`
}) (any, error) {
	var heads []articleHead
	for _, article := range r.KB.Articles {
		heads = append(heads, articleHead{article.ID, article.Title})
	}
	page, next, err := cut(heads, articlesPage, "cursor", a.Cursor, "articles_list")
	if err != nil {
		return nil, err
	}
	return struct {
		Articles   []articleHead `json:"articles"`
		NextCursor string        `json:"nextCursor,omitempty"`
	}{page, next}, nil
}

// articleSearch has no pages: it gives the first hits and says how many there are.
func articleSearch(r *run, a struct {
	Query string `json:"query"`
}) (any, error) {
	wanted, err := words("query", a.Query)
	if err != nil {
		return nil, err
	}
	hits := []articleHead{}
	for _, article := range r.KB.Articles {
		if hasAll(article.Title+" "+article.Body, wanted) {
			hits = append(hits, articleHead{article.ID, article.Title})
		}
	}
	total := len(hits)
	return struct {
		Total     int           `json:"total"`
		Truncated bool          `json:"truncated"`
		Articles  []articleHead `json:"articles"`
	}{total, total > articlesPage, hits[:min(total, articlesPage)]}, nil
}
