package config

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

const diffBase = `
auth: {mode: none}
servers:
  a: {url: "https://a.example.com/mcp"}
  b: {url: "https://b.example.com/mcp", bearer: x, groups: [g]}
`

func TestDiff(t *testing.T) {
	base := mustParse(t, diffBase, nil)
	for _, c := range []struct {
		name, text string
		want       Change
	}{
		{"nothing", diffBase, Change{}},
		{"comments and order", "# hello\nservers:\n  b: {groups: [g], bearer: x, url: \"https://b.example.com/mcp\"}\n  a: {url: \"https://a.example.com/mcp\"}\nauth:\n  mode: none\n", Change{}},
		{"added", diffBase + "  c: {command: [x]}\n", Change{Added: []string{"c"}}},
		{"removed", "auth: {mode: none}\nservers:\n  a: {url: \"https://a.example.com/mcp\"}\n", Change{Removed: []string{"b"}}},
		{"switched off", "auth: {mode: none}\nservers:\n  a: {url: \"https://a.example.com/mcp\", enabled: false}\n  b: {url: \"https://b.example.com/mcp\", bearer: x, groups: [g]}\n", Change{Toggled: []string{"a"}}},
		{"groups", "auth: {mode: none}\nservers:\n  a: {url: \"https://a.example.com/mcp\"}\n  b: {url: \"https://b.example.com/mcp\", bearer: x, groups: [h]}\n", Change{Toggled: []string{"b"}}},
		{"credential", "auth: {mode: none}\nservers:\n  a: {url: \"https://a.example.com/mcp\"}\n  b: {url: \"https://b.example.com/mcp\", bearer: y, groups: [g]}\n", Change{Reconnect: []string{"b"}}},
		{"renamed", "auth: {mode: none}\nservers:\n  a: {url: \"https://a.example.com/mcp\"}\n  z: {url: \"https://b.example.com/mcp\", bearer: x, groups: [g]}\n", Change{Added: []string{"z"}, Removed: []string{"b"}}},
		{"guard", diffBase + "guard: {preset: open}\n", Change{Sections: []string{"guard"}}},
		{"store", diffBase + "store: {file: x.db}\n", Change{Sections: []string{"store"}, Restart: []string{"store"}}},
		{"access", diffBase[:0] + "auth: {mode: none, dev_groups: [x]}" + diffBase[len("\nauth: {mode: none}"):], Change{Sections: []string{"auth"}}},
	} {
		if got := Diff(base, mustParse(t, c.text, nil)); !reflect.DeepEqual(got, c.want) || got.Empty() != reflect.DeepEqual(c.want, Change{}) {
			t.Errorf("%s: %+v; want %+v", c.name, got, c.want)
		}
	}
}

// TestDiffSeesEveryKey covers B167: each key of the configuration, changed
// alone, is a change in the right place.
func TestDiffSeesEveryKey(t *testing.T) {
	noReconnect := []string{"title", "description", "enabled", "prefix", "trust_annotations", "labels", "groups", "default_disabled", "pin", "tools"}
	seen := 0
	check := func(path string, change func(c *Config) reflect.Value, want Change) {
		t.Helper()
		base, changed := mustParse(t, diffBase, nil), mustParse(t, diffBase, nil)
		alter(t, change(changed))
		seen++
		if got := Diff(base, changed); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v; want %+v", path, got, want)
		}
	}
	for _, section := range fieldNames(reflect.TypeFor[Config]()) {
		want := Change{Sections: []string{section}}
		if slices.Contains(needsRestart, section) {
			want.Restart = want.Sections
		}
		field := func(c *Config) reflect.Value { return fieldByName(reflect.ValueOf(c).Elem(), section) }
		ft := field(&Config{}).Type()
		switch {
		case section == "servers":
		case ft.Kind() == reflect.Struct:
			for _, key := range fieldNames(ft) {
				check(section+"."+key, func(c *Config) reflect.Value { return fieldByName(field(c), key) }, want)
			}
		default:
			check(section, field, want)
		}
	}
	for _, key := range fieldNames(serverType) {
		want := Change{Reconnect: []string{"a"}}
		if slices.Contains(noReconnect, key) {
			want = Change{Toggled: []string{"a"}}
		}
		base, changed := mustParse(t, diffBase, nil), mustParse(t, diffBase, nil)
		s := changed.Servers["a"]
		alter(t, fieldByName(reflect.ValueOf(&s).Elem(), key))
		changed.Servers["a"] = s
		seen++
		if got := Diff(base, changed); !reflect.DeepEqual(got, want) {
			t.Errorf("servers.a.%s: %+v; want %+v", key, got, want)
		}
	}
	if seen < 60 {
		t.Errorf("only %d keys were tried", seen)
	}
}

// alter gives a value another one of its type.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + int64(time.Second))
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		v.Set(p)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Struct:
		alter(t, v.Field(0))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("x"), reflect.New(v.Type().Elem()).Elem())
		v.Set(m)
	default:
		t.Fatalf("no way to alter a %s", v.Type())
	}
}
