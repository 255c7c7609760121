package registry

import "sync"

// Who asks for "dns records" mostly wants to see them first: where a query does
// not say what to do, tools that look come before equally good ones that change
// something. This only orders results; it classifies nothing.

// namesALook reports whether a tool's name says that it only looks.
func namesALook(name string) bool {
	looks := false
	words(name, func(w string) {
		switch w {
		case "get", "list", "search", "find", "read", "query", "fetch", "show", "describe", "lookup", "view", "count":
			looks = true
		}
	})
	return looks
}

// changingWords are the stems of words in a query that ask for a change.
var changingWords = sync.OnceValue(func() map[string]bool {
	m := map[string]bool{}
	for _, w := range []string{"add", "append", "apply", "approve", "archive", "assign", "attach", "cancel", "change", "clear", "close", "comment", "copy", "create", "delete",
		"deploy", "disable", "draft", "drop", "edit", "enable", "execute", "export", "fill", "import", "insert", "install", "invite", "kill", "launch", "make", "mark", "merge",
		"modify", "move", "new", "open", "patch", "pause", "post", "publish", "push", "put", "refund", "register", "remove", "rename", "reply", "reset", "restart", "restore",
		"resume", "revoke", "rotate", "run", "save", "schedule", "send", "set", "share", "start", "stop", "submit", "terminate", "trigger", "turn", "update", "upload", "void", "write"} {
		m[stem(w)] = true
	}
	return m
})
