package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// reservedIDs are server ids the portal needs for itself: its own tools are
// named portal_…, and code reaches all tools through codemode.
var reservedIDs = []string{"portal", "codemode"}

// ownHeaders are set by the portal on every request; a configured value would
// break the protocol or be overwritten.
var ownHeaders = []string{
	"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Last-Event-Id",
	"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Transfer-Encoding", "Upgrade",
}

func (v *validator) servers() {
	if v.isBroken("servers") {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(v.c.Servers)) {
		path := join("servers", id)
		switch {
		case !serverIDPattern.MatchString(id):
			v.badID(path, id)
		case len(id) > 63:
			v.fail(v.keys[path], path, "a server id has at most 63 characters; shorten it")
		case slices.Contains(reservedIDs, id):
			v.fail(v.keys[path], path, "the id %q is reserved for the portal itself; choose another", id)
		}
		v.server(path, v.c.Servers[id])
	}
}

// badID reports an id without marking what is below it as broken.
func (v *validator) badID(path, id string) {
	fix := "use lower-case letters and digits, with single dashes between"
	if s := suggestID(id); s != "" {
		fix = fmt.Sprintf("write %s", s)
	}
	at := v.keys[path]
	v.errs = append(v.errs, Error{File: v.file, Line: at.line, Column: at.column, Path: path,
		Message: fmt.Sprintf("%s is not a server id: only lower-case letters, digits and single dashes between them; %s", quote(id), fix)})
}

func suggestID(id string) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(id)), "-")
	for strings.Contains(s, "--") {
		s = strings.ReplaceAll(s, "--", "-")
	}
	return s
}

func (v *validator) server(path string, s Server) {
	if v.isBroken(path) {
		return
	}
	key := func(name string) string { return path + "." + name }
	hasURL, hasCommand, hasOpenAPI := v.has(key("url")), v.has(key("command")), v.has(key("openapi"))
	if !hasOpenAPI && v.has(key("operations")) {
		v.report(key("operations"), "is only for a server with openapi; remove it")
	}
	switch {
	case hasOpenAPI && hasCommand:
		v.report(key("command"), "openapi and command are both given; keep openapi for an HTTP API, or command for an MCP server that the portal starts")
	case hasOpenAPI:
		v.described(path, s, hasURL)
	case hasURL && hasCommand:
		v.report(key("command"), "url and command are both given; keep url for a remote server, or command for a program the portal starts")
	case !hasURL && !hasCommand:
		v.report(path, "has neither url nor command; write url: for a remote server, command: for a program the portal starts, or openapi: for an HTTP API")
	case hasURL:
		v.remote(path, s)
	default:
		v.local(path, s)
	}
	if others := len(v.c.Servers) - 1; !s.HasPrefix() && others > 0 {
		v.report(key("prefix"), "false is only for a portal with a single server, since the id before a name tells servers apart; there %s: remove prefix here, or give this server a portal of its own", are(others, "other server"))
	}
	switch {
	case v.isBroken("limits.call_ceiling") || v.isBroken("limits.call_timeout"):
	case s.CallCeiling > 0 && s.CallTimeout == 0 && v.c.Limits.CallTimeout > s.CallCeiling:
		v.report(key("call_ceiling"), "%s is shorter than limits.call_timeout (%s), which holds here; raise it or give this server a shorter call_timeout", short(s.CallCeiling), short(v.c.Limits.CallTimeout))
	case s.CallCeiling > 0 && s.CallTimeout > s.CallCeiling:
		v.report(key("call_timeout"), "%s is longer than the call_ceiling of this server (%s); shorten it or raise the ceiling", short(s.CallTimeout), short(s.CallCeiling))
	case s.CallCeiling == 0 && s.CallTimeout > v.c.Limits.CallCeiling:
		v.report(key("call_timeout"), "%s is longer than limits.call_ceiling (%s); shorten it or raise the ceiling", short(s.CallTimeout), short(v.c.Limits.CallCeiling))
	}
	for name, t := range s.Tools {
		for what, c := range map[string]Companion{"preview": t.Preview, "undo": t.Undo} {
			if path := join(key("tools"), name) + "." + what; v.has(path) && c.With == "" && !v.isBroken(path) {
				v.report(path, "names no tool; write with")
			}
		}
		if name == "" || len(name) > 256 {
			v.report(join(key("tools"), name), "is not a tool name; write the name as the server lists it")
		}
	}
}

// are is "is 1 thing" or "are n things".
func are(n int, thing string) string {
	if n == 1 {
		return "is 1 " + thing
	}
	return fmt.Sprintf("are %d %ss", n, thing)
}

// operationPattern is what chooses operations of an OpenAPI document.
var operationPattern = regexp.MustCompile(`^(tag:.+|id:.+|[A-Za-z*?]+ +[/*?].*|[/*?].*)$`)

// beside is a path of the file, made absolute where it is relative.
func (v *validator) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(v.file), path)
}

// described checks a server that is an HTTP API with an OpenAPI document.
func (v *validator) described(path string, s Server, hasURL bool) {
	key := func(name string) string { return path + "." + name }
	var doc *url.URL
	if strings.Contains(s.OpenAPI, "://") {
		if doc = v.httpURL(key("openapi"), s.OpenAPI); doc != nil && doc.Scheme == "http" && !IsLoopback(doc.Hostname()) {
			v.warn(key("openapi"), "comes over plain http, where anybody on the way can change it; use https")
		}
	} else if _, err := os.Stat(v.beside(s.OpenAPI)); errors.Is(err, fs.ErrNotExist) {
		v.warn(key("openapi"), "there is no such file; correct the path, which starts at the directory of this file")
	}
	for _, list := range []string{"include", "exclude"} {
		patterns := s.Operations.Include
		if list == "exclude" {
			patterns = s.Operations.Exclude
		}
		for i, p := range patterns {
			if p != "" && !operationPattern.MatchString(p) {
				v.report(fmt.Sprintf("%s.operations.%s[%d]", path, list, i), "is no pattern of operations; write METHOD /path, /path, tag:NAME or id:OPERATION, with * for anything")
			}
		}
	}
	if s.Transport != "auto" {
		v.report(key("transport"), "is only for MCP servers; remove it beside openapi")
	}
	if s.Auth.Used() && !hasURL {
		v.report(path, "signs in (auth) at an API whose address only the document knows; write url: with the address of the API")
	}
	if s.Auth.Used() && s.Auth.Catalog == "user" && v.has(key("auth.catalog")) {
		v.report(key("auth.catalog"), "user is only for MCP servers: the operations are those of the document for everyone; remove it")
	}
	v.http(path, s, hasURL)
}

func (v *validator) remote(path string, s Server) {
	key := func(name string) string { return path + "." + name }
	if s.Transport == "stdio" {
		v.report(key("transport"), "stdio needs command, but url is given; use auto, streamable-http or sse")
	}
	v.http(path, s, true)
}

// http checks what servers reached over HTTP have in common.
func (v *validator) http(path string, s Server, hasURL bool) {
	key := func(name string) string { return path + "." + name }
	var u *url.URL
	if hasURL {
		u = v.httpURL(key("url"), s.URL)
		if own, err := url.Parse(v.c.URL); u != nil && err == nil && v.c.URL != "" && u.Host == own.Host && strings.TrimSuffix(u.Path, "/") == "/mcp" {
			v.report(key("url"), "is this portal itself; write the address of the server")
		}
	}
	for _, k := range []string{"env", "dir"} {
		if v.has(key(k)) {
			v.report(key(k), "is only for a server with command; remove it")
		}
	}
	v.serverAuth(path, s, u)
	credential := s.Bearer != "" || s.Auth.Used()
	if strings.ContainsAny(s.Bearer.Reveal(), " \t\r\n") {
		v.report(key("bearer"), "contains a space or line break; write only the token, without \"Bearer\"")
	}
	for name, value := range s.Headers {
		p := join(key("headers"), name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerPattern.MatchString(name):
			v.report(p, "is not a header name; use letters, digits and dashes")
		case slices.Contains(ownHeaders, canonical):
			v.report(p, "is set by the portal itself; remove it")
		case canonical == "Authorization" && s.Bearer != "":
			v.report(p, "Authorization and bearer are both given; keep one of them")
		case strings.ContainsAny(value.Reveal(), "\r\n"):
			v.report(p, "contains a line break; a header value is one line")
		}
		credential = credential || canonical == "Authorization" || canonical == "Cookie" || strings.Contains(strings.ToLower(name), "key") || strings.Contains(strings.ToLower(name), "token")
	}
	for name := range s.Query {
		switch p := join(key("query"), name); {
		case s.OpenAPI == "":
			v.report(p, "is only for a server with openapi; write headers or bearer instead")
		case name == "" || strings.ContainsAny(name, "&=#? \t\r\n"):
			v.report(p, "is not the name of a parameter; write it as the API's document does")
		}
		credential = true
	}
	if credential && u != nil && u.Scheme == "http" && !IsLoopback(u.Hostname()) {
		v.warn(key("url"), "sends a credential over plain http; use https")
	}
}

func (v *validator) local(path string, s Server) {
	key := func(name string) string { return path + "." + name }
	if len(s.Command) == 0 {
		v.report(key("command"), "is empty; write the program and its arguments as a list")
	} else if s.Command[0] == "" {
		v.report(key("command")+"[0]", "is empty; write the program to start")
	} else if _, own := s.Env["PATH"]; !own && !v.isBroken(key("command")) && !strings.Contains(s.Command[0], "/") {
		if _, err := exec.LookPath(s.Command[0]); err != nil {
			v.warn(key("command")+"[0]", "there is no program %s in PATH here; install it, correct the name or write its path", quote(v.asWritten(key("command")+"[0]", s.Command[0])))
		}
	}
	if s.Transport != "auto" && s.Transport != "stdio" {
		v.report(key("transport"), "%s needs url, but command is given; remove transport or use stdio", s.Transport)
	}
	for _, k := range []string{"headers", "query", "bearer", "auth"} {
		if v.has(key(k)) {
			v.report(key(k), "is only for a server with url; pass credentials in env instead")
		}
	}
	for name := range s.Env {
		if !envNamePattern.MatchString(name) {
			v.report(join(key("env"), name), "is not a variable name; use letters, digits and underscores")
		}
	}
}

// serverRef checks a server id that another key names.
func (v *validator) serverRef(path, id string) {
	if id == "" || v.isBroken("servers") {
		return
	}
	if _, ok := v.c.Servers[id]; ok {
		return
	}
	ids := slices.Sorted(maps.Keys(v.c.Servers))
	switch near := nearest(id, ids); {
	case near != "":
		v.report(path, "there is no server %s; did you mean %q?", quote(v.asWritten(path, id)), near)
	case len(ids) == 0:
		v.report(path, "there is no server %s; servers is empty", quote(v.asWritten(path, id)))
	case len(ids) > 12:
		v.report(path, "there is no server %s; write one of the %d ids under servers", quote(v.asWritten(path, id)), len(ids))
	default:
		v.report(path, "there is no server %s; the servers are %s", quote(v.asWritten(path, id)), list(ids))
	}
}

// text returns a value as the file has it, so that messages do not repeat what
// came from the environment.
func (v *validator) asWritten(path, value string) string {
	if w, ok := v.written[path]; ok && !strings.Contains(w, value) {
		return w
	}
	return value
}

// toolGlob checks a "server/tool" pattern.
func (v *validator) toolGlob(path, glob string) {
	if glob == "" || v.isBroken(path) {
		return
	}
	server, tool, ok := strings.Cut(glob, "/")
	if !ok || server == "" || tool == "" {
		v.report(path, "must be server/tool; write it like dns/list_* or */search")
		return
	}
	if what := checkGlob(glob); what != "" {
		v.report(path, "%s", what)
		return
	}
	if !hasGlob(server) {
		v.serverRef(path, server)
	}
}

func (v *validator) store() {
	s := v.c.Store
	if v.has("store.redis") && v.has("store.file") {
		v.report("store.file", "redis and file are both given; keep one: redis for several replicas, file for one machine")
	}
	if s.Redis == "" {
		return
	}
	u, err := url.Parse(s.Redis.Reveal())
	switch {
	case err != nil:
		v.report("store.redis", "is not a URL; write it like redis://:password@host:6379/0 (percent-encode special characters of the password)")
	case u.Scheme != "redis" && u.Scheme != "rediss":
		v.report("store.redis", "must start with redis:// or rediss:// (with TLS); correct the scheme")
	case u.Hostname() == "":
		v.report("store.redis", "has no host; write it like redis://host:6379/0")
	case !validPort(u.Port()):
		v.report("store.redis", "has a port that is not a number from 1 to 65535; correct it")
	}
}

func (v *validator) ceilings() {
	l := v.c.Limits
	if l.CallTimeout > l.CallCeiling && !v.isBroken("limits.call_ceiling") {
		v.report("limits.call_timeout", "%s is longer than limits.call_ceiling (%s); lower it or raise the other", short(l.CallTimeout), short(l.CallCeiling))
	}
}
