package config

import (
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "", true}, {"*", "a/b.c", true}, {"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false},
		{"a*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"*b", "abc", false}, {"a*c", "abbc", true}, {"a*c", "abbd", false},
		{"list_*", "list_zones", true}, {"list_*", "delist_zones", false}, {"?", "a", true}, {"?", "", false}, {"?", "é", true}, {"??", "é", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false}, {"**", "x", true}, {"*?*", "", false},
		{"a.b", "axb", false}, {"*ü?", "xüé", true}, {"a*b*c", "abcbc", true}, {"*é", "aéé", true},
	} {
		if got := Match(c.glob, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.glob, c.name, got)
		}
	}
}

// TestMatchIsNotExponential uses the pattern that makes naive matchers hang.
func TestMatchIsNotExponential(t *testing.T) {
	begin := time.Now()
	if Match(strings.Repeat("a*", 30)+"b", strings.Repeat("a", 5000)) {
		t.Error("matched")
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("took %s", d)
	}
}

func TestMatchTool(t *testing.T) {
	for _, c := range []struct {
		glob, server, tool string
		want               bool
	}{
		{"dns/list_*", "dns", "list_zones", true}, {"dns/list_*", "crm", "list_zones", false}, {"*/search", "kb", "search", true},
		{"*/search", "kb", "x/search", false}, {"dns/*", "dns", "a/b", true}, {"d*/x", "dns", "x", true}, {"*", "dns", "x", false}, {"dns", "dns", "dns", false},
	} {
		if got := MatchTool(c.glob, c.server, c.tool); got != c.want {
			t.Errorf("MatchTool(%q, %q, %q) = %v", c.glob, c.server, c.tool, got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b?", "axxbc")
	f.Add("*é", "éé")
	f.Fuzz(func(t *testing.T, glob, name string) {
		got := Match(glob, name)
		if !strings.ContainsAny(glob, "*?") && got != (glob == name) {
			t.Errorf("Match(%q, %q) = %v without a wildcard", glob, name, got)
		}
		if !Match(glob+"*", name+"x") && got {
			t.Errorf("Match(%q*, %qx) is false although %q matches %q", glob, name, glob, name)
		}
	})
}

func TestNearest(t *testing.T) {
	words := []string{"auth", "audit", "servers", "client_id", "client_secret", "url"}
	for in, want := range map[string]string{
		"authh": "auth", "auht": "auth", "Auth": "auth", "clientId": "client_id", "client-id": "client_id", "server": "servers", "ulr": "url",
		"zzz": "", "": "", "portal": "", strings.Repeat("a", 100): "", "uri": "url",
	} {
		if got := nearest(in, words); got != want {
			t.Errorf("nearest(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "portal.localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "[::1]": true,
		"": false, "0.0.0.0": false, "::": false, "example.com": false, "localhost.example.com": false, "notlocalhost": false, "192.168.0.1": false, "::ffff:127.0.0.1": true,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("IsLoopback(%q) = %v", host, got)
		}
	}
}
