package worker

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// elsewhere says what to use instead of a global that other platforms have.
var elsewhere = map[string]string{
	"fetch":              "there is no network: call tools with codemode.<tool>({…})",
	"XMLHttpRequest":     "there is no network: call tools with codemode.<tool>({…})",
	"require":            "there are no modules: everything is reachable through codemode",
	"module":             "there are no modules: return the value instead",
	"exports":            "there are no modules: return the value instead",
	"process":            "there is no process or environment here",
	"Deno":               "this is a plain JavaScript sandbox",
	"Bun":                "this is a plain JavaScript sandbox",
	"Buffer":             "use TextEncoder, atob and btoa",
	"window":             "there is no browser here",
	"document":           "there is no browser here",
	"global":             "use globalThis",
	"print":              "use console.log",
	"performance":        "use Date.now()",
	"True":               "JavaScript writes true",
	"False":              "JavaScript writes false",
	"None":               "JavaScript writes null",
	"len":                "use .length",
	"range":              "use a for loop",
	"str":                "use String(x)",
	"json":               "use JSON; results of tools are parsed already",
	"requests":           "there is no network: call tools with codemode.<tool>({…})",
	"axios":              "there is no network: call tools with codemode.<tool>({…})",
	"setInterval":        "use a loop with await sleep(ms)",
	"setImmediate":       "use setTimeout(f, 0)",
	"Temporal":           "use Date",
	"tools":              "tools are called as " + helperCall,
	"tool":               "tools are called as " + helperCall,
	"mcp":                "tools are called as " + helperCall,
	"client":             "tools are called as " + helperCall,
	"session":            "tools are called as " + helperCall,
	"portal":             "tools are called as " + helperCall,
	"api":                "tools are called as " + helperCall,
	"servers":            "tools are called as " + helperCall,
	"functions":          "tools are called as " + helperCall,
	"call_tool":          "tools are called as " + helperCall,
	"callTool":           "tools are called as " + helperCall,
	"call":               "tools are called as " + helperCall,
	"use_mcp_tool":       "tools are called as " + helperCall,
	"execute":            "tools are called as " + helperCall,
	"portal_execute":     "this is the code of a portal_execute: tools are called as " + helperCall,
	"portal_query_tools": "here it is " + helperSearch,
}

var namespaceBlock = regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?(?:namespace|module)[ \t]+\w[\w.]*[ \t]*\{`)

// syntaxHint is hint for what the language here does not have.
func (r *run) syntaxHint(message string) string {
	switch {
	case strings.Contains(message, "Invalid flags supplied to RegExp"):
		return ": the flags d and v are not available here, use the others"
	case r.src != nil && strings.Contains(message, "Expected") && namespaceBlock.MatchString(r.src.text):
		return ": namespace is not available here, use an object"
	}
	return ""
}

// hint adds the next step to errors that models run into.
func (r *run) hint(name, message string) string {
	if name == "TypeError" && aboutAbsence.MatchString(message) {
		return r.lastFields()
	}
	if name == "SyntaxError" {
		return r.syntaxHint(message)
	}
	if name != "ReferenceError" {
		return ""
	}
	m := notDefined.FindStringSubmatch(message)
	if m == nil {
		if strings.Contains(message, "before initialization") {
			return ": a variable is used above its declaration (a variable named like a server hides it, so rename the variable)"
		}
		return ""
	}
	if h := elsewhere[m[1]]; h != "" {
		return ": " + h
	}
	// ls -la is a subtraction to the language.
	if line := strings.TrimSpace(r.src.text); !strings.Contains(line, "\n") && !strings.ContainsAny(line, "(){};=") && shellSign.MatchString(line) {
		return ": this is a shell command, and " + speaks
	}
	servers := r.names.serverIDs
	if why := proto.WhyWithheld(r.msg.Withheld, m[1]); why != "" {
		return ": " + why
	}
	if t := r.names.find(m[1]); t != nil {
		return ": write codemode." + t.Identifier + "({…})"
	}
	h := ""
	if near := nearest(m[1], servers); len(near) > 0 {
		h = "; did you mean " + near[0] + "?"
	}
	if len(servers) == 0 {
		return h + "; no server is connected"
	}
	shown := servers
	more := ""
	if len(shown) > 40 {
		shown, more = shown[:40], fmt.Sprintf(" and %d more (codemode.servers())", len(servers)-40)
	}
	return h + "; the servers are " + strings.Join(shown, ", ") + more
}
