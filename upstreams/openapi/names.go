package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// AnyRequestTool is the name of the tool for requests that the document does
// not describe.
const AnyRequestTool = "any_request"

// nameOperations gives every operation the name of its tool: its operationId in
// the letters that tools have, or method and path. Operations that would share
// a name all take the longer form, so that no name depends on their order, and
// a name never comes to mean another operation.
func (d *Document) nameOperations() {
	forms := []func(*Operation) string{
		func(op *Operation) string { return nameText(op.ID) },
		func(op *Operation) string { return nameText(strings.ToLower(op.Method) + " " + op.Path) },
		func(op *Operation) string {
			h := sha256.Sum256([]byte(op.Method + " " + op.Path))
			return nameText(strings.ToLower(op.Method)+" "+op.Path) + "_" + hex.EncodeToString(h[:4])
		},
	}
	left := d.Operations
	for i, form := range forms {
		count := map[string]int{AnyRequestTool: 2}
		for _, op := range d.Operations {
			if op.Name != "" {
				count[op.Name] = 2
			}
		}
		for _, op := range left {
			count[form(op)]++
		}
		var again []*Operation
		for _, op := range left {
			if name := form(op); name != "" && (count[name] == 1 || i == len(forms)-1) {
				op.Name = name
			} else {
				again = append(again, op)
			}
		}
		left = again
	}
	kept := d.Operations[:0]
	for _, op := range d.Operations {
		if op.Name == "" || d.byName[op.Name] != nil {
			d.warn("%s %s is left out: it is there twice", op.Method, op.Path)
			continue
		}
		d.byName[op.Name] = op
		kept = append(kept, op)
	}
	d.Operations = kept
}

// nameText keeps the letters that names of tools have; runs of others become
// one underscore.
func nameText(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range s {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		} else {
			gap = true
		}
	}
	return b.String()
}
