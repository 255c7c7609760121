package pages

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// checkLinks reads the deep links as their editors do.
func checkLinks(t *testing.T, links map[string]string, address string) {
	t.Helper()
	u, err := url.Parse(links["cursor"])
	if err != nil || u.Scheme != "cursor" || u.Host != "anysphere.cursor-deeplink" || u.Path != "/mcp/install" || u.Query().Get("name") != "demo" {
		t.Fatalf("cursor: %v, %v", u, err)
	}
	raw, err := base64.StdEncoding.DecodeString(u.Query().Get("config"))
	var got struct{ Name, Type, URL string }
	if err != nil || json.Unmarshal(raw, &got) != nil || got.URL != address {
		t.Errorf("cursor: %s, %v", raw, err)
	}
	rest, ok := strings.CutPrefix(links["vs-code"], "vscode:mcp/install?")
	text, err := url.PathUnescape(rest)
	if !ok || err != nil || json.Unmarshal([]byte(text), &got) != nil || got.URL != address || got.Name != "demo" || got.Type != "http" {
		t.Errorf("vs code: %s, %v", text, err)
	}
}
