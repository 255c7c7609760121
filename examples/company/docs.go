package company

import (
	"fmt"
	"slices"
	"strings"
)

const docsPage = 15

// docHead is a document as a list has it: without text and without size.
type docHead struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Folder    string `json:"folder"`
	UpdatedAt string `json:"updated_at"`
}

func docsList(r *run, a struct {
	Folder string `json:"folder"`
	Cursor string `json:"cursor"`
}) (any, error) {
	var heads []docHead
	var folders []string
	for _, d := range r.Docs.Docs {
		folders = append(folders, d.Folder)
		if a.Folder == "" || d.Folder == a.Folder {
			heads = append(heads, docHead{d.ID, d.Title, d.Folder, d.UpdatedAt})
		}
	}
	slices.Sort(folders)
	if err := oneOf("folder", a.Folder, slices.Compact(folders)...); err != nil {
		return nil, err
	}
	page, next, err := cut(heads, docsPage, "cursor", a.Cursor, "docs_list", a.Folder)
	if err != nil {
		return nil, err
	}
	return struct {
		Docs       []docHead `json:"docs"`
		NextCursor string    `json:"nextCursor,omitempty"`
	}{page, next}, nil
}

func docGet(r *run, a struct {
	ID string `json:"id"`
}) (any, error) {
	d, ok := r.document(a.ID)
	if !ok {
		return nil, fmt.Errorf("no document has the id %q; docs_list has the ids", a.ID)
	}
	return d, nil
}

// document finds a document. Documents never change, so no lock is needed.
func (f *fixture) document(id string) (Document, bool) {
	i := slices.IndexFunc(f.Docs.Docs, func(d Document) bool { return d.ID == id })
	if i < 0 {
		return Document{}, false
	}
	return f.Docs.Docs[i], true
}

// documentsLike returns the ids that begin with prefix.
func (f *fixture) documentsLike(prefix string) []string {
	ids := []string{}
	for _, d := range f.Docs.Docs {
		if strings.HasPrefix(d.ID, prefix) {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
