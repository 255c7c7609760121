package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Credentials in the file itself, references that are none, documents and
// programs that are not there: valid, but an admin wants to hear of them.
func TestWarnsOfWhatIsValidButHardlyMeant(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "api.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Parse(filepath.Join(dir, "portal.yaml"), []byte(`
url: https://portal.example.com
auth:
  issuer: https://idp.example.com
  client_id: portal
  client_secret: planted-secret
store: {redis: "redis://:planted-secret@redis.example.com:6379"}
servers:
  a: {url: "https://a.example.com/mcp", bearer: $A_TOKEN}
  b: {url: "https://b.example.com/mcp", bearer: "${B_TOKEN:-planted-secret}"}
  c: {url: "https://c.example.com/mcp", headers: {X-Api-Key: planted-secret, X-Tenant: acme}}
  d: {command: [no-such-program-of-the-portal], env: {D_PASSWORD: planted-secret, D_LEVEL: info}}
  e: {openapi: nowhere.yaml, url: "https://e.example.com"}
  f: {openapi: api.yaml, url: "https://f.example.com", bearer: "${F_TOKEN}"}
  g: {command: [no-such-program-of-the-portal], env: {PATH: /opt/bin}}
`), func(name string) (string, bool) { return "token-from-the-environment", name == "F_TOKEN" })
	if err != nil {
		t.Fatal(err)
	}
	stands := "stands in the file for everybody who may read that; write ${NAME} for an environment variable, or file:/path"
	want := []string{
		"6:18: auth.client_secret: " + stands,
		"7:16: store.redis: " + stands,
		"9:49: servers.a.bearer: is this text, not the value of a variable; write ${A_TOKEN}",
		"10:49: servers.b.bearer: is this text, not the value of a variable; write ${B_TOKEN}",
		"11:62: servers.c.headers.X-Api-Key: " + stands,
		"12:17: servers.d.command[0]: there is no program \"no-such-program-of-the-portal\" in PATH here; install it, correct the name or write its path",
		"12:67: servers.d.env.D_PASSWORD: " + stands,
		"13:16: servers.e.openapi: there is no such file; correct the path, which starts at the directory of this file",
	}
	got := strings.Split(strings.ReplaceAll(strings.Join(c.Warnings, "\n"), filepath.Join(dir, "portal.yaml")+":", ""), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("no warning %s", want[i])
		case i >= len(want) || got[i] != want[i]:
			t.Errorf("warning %s\nwant    %s", got[i], want[min(i, len(want)-1)])
		}
	}
}
