package vault

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

func mustVault(t *testing.T, s store.Store, keys ...string) *Vault {
	t.Helper()
	var list []config.Secret
	for _, k := range keys {
		list = append(list, config.Secret(k))
	}
	v, err := New(Options{Keys: list, Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func seal(t *testing.T, b Box, name, text string) string {
	t.Helper()
	s, err := b.Seal(t.Context(), name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fileStore(t *testing.T) store.Store {
	t.Helper()
	s, err := store.OpenFile(filepath.Join(t.TempDir(), "s.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSealAndOpen(t *testing.T) {
	k1, k2 := NewKey(time.Now()), NewKey(time.Now())
	v := mustVault(t, nil, k1)
	b := v.Box("refresh")
	sealed := seal(t, b, "upstream:alice:github", "secret-of-alice")
	if strings.Contains(sealed, "secret") || sealed == seal(t, b, "upstream:alice:github", "secret-of-alice") {
		t.Error("the value is readable or the nonce repeats")
	}
	got, stale, err := b.Open(t.Context(), "upstream:alice:github", sealed)
	if err != nil || stale || string(got) != "secret-of-alice" {
		t.Fatalf("%q stale=%v %v", got, stale, err)
	}
	// Nothing else opens it.
	flipped := sealed[:len(sealed)-1] + string("AB"[len(sealed)%2])
	if flipped == sealed {
		flipped = sealed[:len(sealed)-1] + "C"
	}
	for what, try := range map[string]func() error{
		"another record": func() error { _, _, err := b.Open(t.Context(), "upstream:bob:github", sealed); return err },
		"another purpose": func() error {
			_, _, err := v.Box("code").Open(t.Context(), "upstream:alice:github", sealed)
			return err
		},
		"changed": func() error { _, _, err := b.Open(t.Context(), "upstream:alice:github", flipped); return err },
		"cut":     func() error { _, _, err := b.Open(t.Context(), "upstream:alice:github", sealed[:20]); return err },
		"no form": func() error { _, _, err := b.Open(t.Context(), "upstream:alice:github", "x"); return err },
		"same id, another key": func() error {
			id, _, _ := strings.Cut(k1, ":")
			_, rest, _ := strings.Cut(k2, ":")
			_, _, err := mustVault(t, nil, id+":"+rest).Box("refresh").Open(t.Context(), "upstream:alice:github", sealed)
			return err
		},
	} {
		if err := try(); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := mustVault(t, nil, k2).Box("refresh").Open(t.Context(), "upstream:alice:github", sealed); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without its key: %v", err)
	}
	// Rotation: the new key seals, the old one still opens and says so.
	if err := v.SetKeys([]config.Secret{config.Secret(k2), config.Secret(k1)}); err != nil {
		t.Fatal(err)
	}
	got, stale, err = b.Open(t.Context(), "upstream:alice:github", sealed)
	if err != nil || !stale || string(got) != "secret-of-alice" {
		t.Errorf("after rotation: %q stale=%v %v", got, stale, err)
	}
	if id, _, _ := strings.Cut(k2, ":"); !strings.HasPrefix(seal(t, b, "x", "y"), id+".") {
		t.Error("the first key does not seal")
	}
}

func TestKeysAreStrict(t *testing.T) {
	k := NewKey(time.Now())
	for _, bad := range [][]config.Secret{{"x"}, {"id:short"}, {"id!:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, {config.Secret(k), config.Secret(k)}} {
		if _, err := New(Options{Keys: bad}); err == nil || strings.Contains(err.Error(), "AAEC") {
			t.Errorf("keys %d: %v", len(bad), err)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("neither keys nor a store is taken")
	}
}

// Without keys in the configuration replicas agree on one through the store,
// also when it loses it.
func TestKeyInStore(t *testing.T) {
	s := fileStore(t)
	a, b := mustVault(t, s), mustVault(t, s)
	clock := time.Now()
	a.now = func() time.Time { return clock }
	b.now = a.now
	if !a.InStore() || mustVault(t, s, NewKey(clock)).InStore() {
		t.Error("InStore does not tell the two apart")
	}
	sealed := seal(t, a.Box("p"), "n", "text")
	if got, _, err := b.Box("p").Open(t.Context(), "n", sealed); err != nil || string(got) != "text" {
		t.Fatalf("the other replica: %q %v", got, err)
	}
	if err := s.Delete(t.Context(), ringKey); err != nil {
		t.Fatal(err)
	}
	// Who began meanwhile has another key; the old ones take it and keep theirs.
	c := mustVault(t, s)
	later := seal(t, c.Box("p"), "n", "later")
	clock = clock.Add(ringRetry)
	if got, _, err := a.Box("p").Open(t.Context(), "n", later); err != nil || string(got) != "later" {
		t.Errorf("what the new replica sealed: %q %v", got, err)
	}
	if got, stale, err := a.Box("p").Open(t.Context(), "n", sealed); err != nil || !stale || string(got) != "text" {
		t.Errorf("what was sealed before: %q stale=%v %v", got, stale, err)
	}
	// Lost with nobody new: it goes back as it was.
	if err := s.Delete(t.Context(), ringKey); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(ringReload)
	seal(t, a.Box("p"), "n", "x")
	if got, _, err := mustVault(t, s).Box("p").Open(t.Context(), "n", sealed); err != nil || string(got) != "text" {
		t.Errorf("after it went back: %q %v", got, err)
	}
	if err := s.Set(t.Context(), ringKey, []byte("{"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := mustVault(t, s).Box("p").Seal(t.Context(), "n", nil); err == nil || !strings.Contains(err.Error(), "auth.encryption_keys") {
		t.Errorf("a damaged ring: %v", err)
	}
}

// downStore is a store that cannot be reached.
type downStore struct{ store.Store }

func (downStore) Get(context.Context, string) ([]byte, bool, error) {
	return nil, false, store.ErrUnavailable
}

func TestStoreAway(t *testing.T) {
	if _, err := mustVault(t, downStore{}).Box("p").Seal(t.Context(), "n", nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	// A key of the configuration needs no store.
	seal(t, mustVault(t, downStore{}, NewKey(time.Now())).Box("p"), "n", "x")
	// A ring that is known goes on.
	s := fileStore(t)
	v := mustVault(t, s)
	sealed := seal(t, v.Box("p"), "n", "x")
	v.store = downStore{}
	v.now = func() time.Time { return time.Now().Add(time.Hour) }
	if _, _, err := v.Box("p").Open(t.Context(), "n", sealed); err != nil {
		t.Error(err)
	}
}
