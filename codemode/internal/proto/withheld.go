package proto

import "strings"

// Withheld are tools of one server that a script cannot have now although its
// caller may know of them.
type Withheld struct {
	Server string   `json:"server"`          // identifier
	Tools  []string `json:"tools,omitempty"` // outward names; none: whatever the server has
	Why    string   `json:"why"`             // goes on after the name: "is held back: …"
}

// WhyWithheld says why there is no tool, or server, of a name in whatever
// spelling although there could be one; "" if nothing is known of it.
func WhyWithheld(list []Withheld, name string) string {
	if len(list) == 0 || len(name) > 300 {
		return ""
	}
	name = strings.TrimPrefix(strings.Trim(name, `" `), "codemode.")
	server, _, _ := strings.Cut(strings.NewReplacer("_", ".", "/", ".").Replace(name), ".")
	for _, w := range list {
		for _, t := range w.Tools {
			if fold(t) == fold(name) {
				return "tool " + t + " " + w.Why
			}
		}
		if len(w.Tools) == 0 && fold(server) == fold(w.Server) {
			return "server " + w.Server + " " + w.Why
		}
	}
	for _, w := range list { // a server of which nothing else is there
		if len(w.Tools) > 0 && fold(name) == fold(w.Server) {
			return "tool " + w.Tools[0] + " " + w.Why
		}
	}
	return ""
}

func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", "$", "", "/", "").Replace(strings.ToLower(s))
}
