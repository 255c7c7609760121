package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// disguises are the forms in which a secret may turn up in a text.
func disguises(secret string) []string {
	quoted, _ := json.Marshal(secret)
	out := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), string(quoted[1 : len(quoted)-1]), html.EscapeString(secret), fmt.Sprintf("%q", secret)[1:]}
	for _, s := range []string{secret, "cc-client:" + url.QueryEscape(secret), "cc-client:" + secret} {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
	}
	// Half of it is too much, too.
	return append(out, secret[:len(secret)/2], secret[len(secret)/2:])
}

// echo answers with all that it was sent, in the way of an error.
func echo(t *testing.T, status int, contentType string, wrap func(said string) string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		id, secret, _ := r.BasicAuth()
		said := fmt.Sprintf("%v %v %s %v %s %s %s", r.Header["Authorization"], r.Header["X-Key"], r.URL, form, body, id, secret)
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("WWW-Authenticate", "Bearer error_description="+string(mustJSON(said)))
		w.Header().Set("Location", "http://127.0.0.1:1/?stolen="+url.QueryEscape(said))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, wrap(said))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Secrets of every kind are planted in every place that takes one, everything
// is made to fail and to repeat what it was sent, and nothing that the program
// says holds any: log at its finest, audit, pages, status, errors of calls,
// check and the other commands.
func TestSecretsAreSaidNowhere(t *testing.T) {
	dir := t.TempDir()
	n := 0
	secrets := map[string]string{}
	plant := func(name string) string {
		n++
		secrets[name] = fmt.Sprintf(`cAnaRy%d-%s/+=&%%7Ax"Zq%dW`, n, strings.Repeat(string(rune('g'+n)), 9), n)
		return secrets[name]
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PORTAL_BEARER", plant("bearer of the environment"))
	t.Setenv("PORTAL_CC", plant("client secret"))
	t.Setenv("PORTAL_IDP", plant("client secret at the IdP"))
	pemKey := authtest.PrivateKey(t, "EC").Reveal()
	t.Setenv("PORTAL_PEM", pemKey)
	body := strings.Split(strings.TrimSpace(pemKey), "\n")
	secrets["private key"] = strings.Join(body[1:len(body)-1], "\n")
	secrets["private key in one line"] = strings.Join(body[1:len(body)-1], "")
	keyFile := write("header", plant("header of a file")+"\n", 0o600)
	command := write("print", "#!/bin/sh\ncat "+write("source", plant("secret of a command"), 0o600)+"\n", 0o700)
	query := plant("key in a query")
	literal := plant("literal bearer")
	child := plant("environment of a child")
	key := newKey(t)
	secrets["encryption key"] = strings.SplitN(key, ":", 2)[1]
	token, hash := newServiceToken(t, "robot")
	secrets["service token"] = token

	text := func(s string) string { return s }
	as := echo(t, 400, "application/json", func(said string) string {
		return string(mustJSON(map[string]string{"error": "invalid_client", "error_description": said}))
	})
	meta := httptest.NewServer(nil)
	t.Cleanup(meta.Close)
	meta.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/.well-known/oauth-authorization-server") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": meta.URL, "authorization_endpoint": meta.URL + "/a", "token_endpoint": as, "code_challenge_methods_supported": []string{"S256"}})
	})
	idp := authtest.StartFakeIdP(t)
	addr := freePort(t)
	config := fmt.Sprintf(`
listen: %s
url: http://%s
log: {level: debug}
audit: {file: %s/audit.jsonl}
store: {file: %s/portal.db}
auth:
  mode: oidc
  accept: [idp]
  issuer: %s
  client_id: portal
  client_secret: ${PORTAL_IDP}
  admins: [eng]
  encryption_keys: ["file:%s"]
  private_hosts: ["%s", "%s"]
  service_tokens: [{id: robot, hash: %q}]
servers:
  unauthorized: {url: %q, bearer: "${PORTAL_BEARER}"}
  broken: {url: %q, headers: {X-Key: "file:%s"}}
  refusing: {url: %q, headers: {X-Key: "exec:%s"}, bearer: "${PORTAL_BEARER}"}
  elsewhere: {url: %q, bearer: "${PORTAL_BEARER}"}
  gone: {url: "http://127.0.0.1:1/mcp?api_key=%s", bearer: "${PORTAL_BEARER}"}
  queried: {url: "%s/mcp?api_key=%s"}
  written: {url: %q, bearer: '%s'}
  client: {url: %q, auth: {type: client_credentials, client_id: cc-client, client_secret: "${PORTAL_CC}", issuer: %q}}
  keyed: {url: %q, auth: {type: client_credentials, client_id: cc-client, private_key: "${PORTAL_PEM}", issuer: %q}}
  child:
    command: [/bin/sh, -c, 'echo "dying with $KEY" >&2; env >&2; echo "$KEY"; exit 3']
    env: {KEY: '%s'}
  mute:
    command: [/bin/sh, -c, 'echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,\"message\":\"no: $(printf %%s "$KEY" | sed "s/\"/\\\\\"/g")\"}}"; sleep 60']
    env: {KEY: '%s'}
`, addr, addr, dir, dir, idp.Issuer, write("key", key, 0o600), as, meta.URL, hash,
		echo(t, 401, "text/plain", text)+"/mcp", echo(t, 500, "text/plain", text)+"/mcp", keyFile,
		echo(t, 200, "application/json", func(said string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":%s,"data":%s}}`, mustJSON(said), mustJSON(said))
		})+"/mcp", command,
		echo(t, 302, "text/plain", text)+"/mcp", url.QueryEscape(query), echo(t, 500, "application/json", func(said string) string { return string(mustJSON(map[string]string{"error": said})) }), url.QueryEscape(query),
		echo(t, 403, "text/plain", text)+"/mcp", literal, echo(t, 401, "text/plain", text)+"/mcp", meta.URL, echo(t, 401, "text/plain", text)+"/mcp", meta.URL, child, child)
	path := write("portal.yaml", config, 0o600)

	var said strings.Builder // all that anybody could read, with where it was
	note := func(where, what string) { fmt.Fprintf(&said, "\n== %s\n%s\n", where, what) }
	run := func(args ...string) {
		out, _ := exec.Command(binary, args...).CombinedOutput()
		note("mcp-portal "+strings.Join(args, " "), string(out))
	}
	run("check", "--config", path)
	run("tools", "--config", path, "--wait", "5s")
	// Mistakes at and around secrets: what is wrong is said without the value.
	for i, broken := range []string{
		strings.Replace(config, `bearer: '`+literal+`'`, `bearer: ['`+literal+`']`, 1),
		strings.Replace(config, `bearer: '`+literal+`'`, `bearrer: '`+literal+`'`, 1),
		strings.Replace(config, `bearer: '`+literal+`'`, `bearer: {a: '`+literal+`'}`, 1),
		strings.Replace(config, `bearer: '`+literal+`'`, `headers: '`+literal+`'`, 1),
		strings.Replace(config, `bearer: '`+literal+`'`, `bearer: '`+literal, 1),
		strings.Replace(config, `bearer: '`+literal+`'`, `timeout: '`+literal+`'`, 1),
		strings.Replace(config, `KEY: '`+child+`'`, `KEY: ['`+child+`']`, 1),
		strings.Replace(config, `KEY: '`+child+`'`, `"K=Y": '`+child+`'`, 1),
		strings.Replace(config, `client_secret: ${PORTAL_IDP}`, `client_secret: [${PORTAL_IDP}]`, 1),
		strings.Replace(config, `client_secret: ${PORTAL_IDP}`, `client_id: ${PORTAL_IDP}`, 1),
		strings.Replace(config, `private_key: "${PORTAL_PEM}"`, `private_key: ["${PORTAL_PEM}"]`, 1),
		strings.Replace(config, `private_key: "${PORTAL_PEM}"`, `private_key: "${PORTAL_PEM}and more"`, 1),
		strings.Replace(config, `private_key: "${PORTAL_PEM}"`, `private_key: "x${PORTAL_PEM}"`, 1),
		strings.Replace(config, `private_key: "${PORTAL_PEM}"`, `private_key_id: "${PORTAL_PEM}"`, 1),
		strings.Replace(config, `private_key: "${PORTAL_PEM}"`, `client_id: "${PORTAL_PEM}"`, 1),
		strings.Replace(config, `exec:`+command, `exec:`+write("half", "#!/bin/sh\ncat "+filepath.Join(dir, "source")+"; exit 1\n", 0o700), 1),
		strings.Replace(config, `["file:`, `["`+secrets["encryption key"]+`", "file:`, 1),
		strings.Replace(config, "api_key="+url.QueryEscape(query), "api key="+url.QueryEscape(query)+"\x01", 1),
	} {
		if broken == config {
			t.Fatalf("mistake %d changes nothing", i)
		}
		run("check", "--config", write(fmt.Sprintf("broken%d.yaml", i), broken, 0o600))
	}

	p := startProcess(t, "serve", "--config", path)
	admin := idp.Token(map[string]any{"sub": "boss", "aud": "http://" + addr + "/mcp", "groups": []string{"eng"}})
	secrets["token of the admin"] = admin
	get := func(path string) string {
		req, err := http.NewRequest("GET", p.base()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+admin)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		note("GET "+path, string(b))
		return string(b)
	}
	eventually(t, "every server has failed", func() error {
		var st struct {
			Servers []struct {
				Server, State string
				Error         *struct{ Message string }
			}
		}
		if err := json.Unmarshal([]byte(get("/status")), &st); err != nil {
			return err
		}
		failed := 0
		for _, s := range st.Servers {
			if s.State == "degraded" && s.Error != nil {
				failed++
			}
		}
		if failed < 10 {
			return fmt.Errorf("%d have", failed)
		}
		return nil
	})
	for _, header := range []string{"Bearer " + admin, "Bearer " + token, "Bearer x" + token, "Basic " + base64.StdEncoding.EncodeToString([]byte("a:"+token))} {
		for _, body := range []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"portal_list_servers","arguments":{}}}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refusing_x","arguments":{}}}`} {
			resp, b := post(t, p.URL, body, map[string]string{"Authorization": header})
			note("POST /mcp", fmt.Sprint(resp.Header, string(b)))
		}
		resp, b := post(t, p.URL+"?optimize_context=search_and_execute", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"portal_query_tools","arguments":{"servers":["refusing","client","child"]}}}`, map[string]string{"Authorization": header})
		note("POST /mcp", fmt.Sprint(resp.Header, string(b)))
	}
	idp.SetUser(authtest.User{Sub: "boss", Name: "Boss", Groups: []string{"eng"}})
	b := authtest.NewBrowser(t, "boss")
	for _, path := range []string{"/", "/servers", "/approvals", "/clients", "/pins", "/connect?server=client", "/servers/refusing", "/servers-callback?code=x&state=y"} {
		note("page "+path, b.Get(p.base()+path).Body)
	}
	// An edit of every secret, and one that cannot be read.
	t.Setenv("PORTAL_BEARER", "another")
	write("portal.yaml", strings.Replace(config, "api_key="+url.QueryEscape(query), "api_key=new", -1), 0o600)
	eventually(t, "the edit is in effect", func() error {
		if !strings.Contains(p.output(), "configuration reloaded") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	write("portal.yaml", strings.Replace(config, `bearer: '`+literal+`'`, `bearer: ['`+literal+`']`, 1), 0o600)
	eventually(t, "the mistake is told", func() error {
		if !strings.Contains(p.output(), "portal.yaml:") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	p.stop()
	note("log", p.output())
	trail, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	note("audit", string(trail))

	all := said.String()
	for _, want := range []string{"server unauthorized", "server refusing", "server child", "invalid_client", "broken3.yaml"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing was said of %q: the test looks at too little", want)
		}
	}
	for name, secret := range secrets {
		for _, form := range slices.Compact(disguises(secret)) {
			for at := strings.Index(all, form); at >= 0; at = -1 {
				where := all[strings.LastIndex(all[:at], "\n== ")+4:]
				t.Errorf("the %s (as %.60q) is in: %.80s: …%.300s", name, form, where[:strings.IndexByte(where, '\n')], all[max(0, at-200):min(len(all), at+120)])
			}
		}
	}
}
