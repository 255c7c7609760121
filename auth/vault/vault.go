package vault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

const (
	keyBytes   = 32
	ringKey    = "vault:ring"     // in the store, when portal.yaml has no keys
	ringReload = time.Minute      // how often the ring in the store is looked at
	ringRetry  = 10 * time.Second // until the store is asked again for a key that is missing
)

var keyID = regexp.MustCompile(`^[A-Za-z0-9-]{1,32}$`)

// key is one 256 bit key of the ring.
type key struct {
	ID     string `json:"id"`
	Secret []byte `json:"key"`
}

// Vault is a ring of keys. The first seals, all open. It is safe for
// concurrent use.
type Vault struct {
	store store.Store
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	given   bool // the ring is that of portal.yaml
	ring    []key
	checked time.Time // when the store was last asked for its ring
}

// Options are what New needs.
type Options struct {
	Keys  []config.Secret  // "id:base64 of 32 bytes", the first seals; none: a key is made and kept in the store
	Store store.Store      // for the key that is made; may be nil if there are Keys
	Log   *slog.Logger     // nil: nothing is logged
	Now   func() time.Time // nil: time.Now
}

// New reads the keys without contacting anything.
func New(o Options) (*Vault, error) {
	v := &Vault{store: o.Store, log: o.Log, now: o.Now}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	if v.now == nil {
		v.now = time.Now
	}
	if err := v.SetKeys(o.Keys); err != nil {
		return nil, err
	}
	return v, nil
}

// SetKeys puts another ring into effect; after an error the one before stays.
func (v *Vault) SetKeys(list []config.Secret) error {
	ring, err := parseKeys(list)
	if err != nil {
		return err
	}
	if len(ring) == 0 && v.store == nil {
		return errors.New("setting up encryption: neither keys nor a store given")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(ring) == 0 {
		if v.given {
			v.given, v.ring, v.checked = false, nil, time.Time{}
		}
		return nil
	}
	v.given, v.ring = true, ring
	return nil
}

// InStore reports whether the key lies in the store beside what it seals,
// because portal.yaml has none.
func (v *Vault) InStore() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.given
}

func parseKeys(list []config.Secret) ([]key, error) {
	var ring []key
	for i, s := range list {
		id, secret, err := config.ParseKey(s)
		if err != nil {
			return nil, fmt.Errorf("reading auth.encryption_keys: item %d %w", i+1, err)
		}
		for _, have := range ring {
			if have.ID == id {
				return nil, fmt.Errorf("reading auth.encryption_keys: item %d has the id of another key; give each its own", i+1)
			}
		}
		ring = append(ring, key{ID: id, Secret: secret})
	}
	return ring, nil
}

// NewKey makes a key in the form that portal.yaml takes.
func NewKey(now time.Time) string {
	k := newKey(now)
	return k.ID + ":" + base64.StdEncoding.EncodeToString(k.Secret)
}

func newKey(now time.Time) key {
	secret := make([]byte, keyBytes)
	rand.Read(secret)
	return key{ID: now.UTC().Format("20060102") + "-" + strings.ToLower(rand.Text()[:6]), Secret: secret}
}

// keys gives the ring, asking the store where the ring is kept there. A store
// that lost the ring gets it back from whoever still has it; until a replica
// has seen the ring of another one, both open what they sealed themselves.
func (v *Vault) keys(ctx context.Context) ([]key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.given || (v.ring != nil && v.now().Sub(v.checked) < ringReload) {
		return v.ring, nil
	}
	found, err := v.fromStore(ctx)
	if err != nil {
		if v.ring != nil {
			v.checked = v.now().Add(ringRetry - ringReload)
			return v.ring, nil // what it seals stays readable; the store reports itself
		}
		return nil, err
	}
	if v.ring == nil {
		v.log.Warn("auth.encryption_keys is not set: the key that encrypts stored credentials is kept in the store beside them; whoever can read the store can read both")
	}
	v.ring, v.checked = merge(found, v.ring), v.now()
	return v.ring, nil
}

func (v *Vault) fromStore(ctx context.Context) ([]key, error) {
	mine := v.ring
	if mine == nil {
		mine = []key{newKey(v.now())}
	}
	raw, err := json.Marshal(mine)
	if err != nil {
		return nil, fmt.Errorf("making an encryption key: %w", err)
	}
	for range 3 {
		have, ok, err := v.store.Get(ctx, ringKey)
		if err != nil {
			return nil, fmt.Errorf("reading the encryption key: %w", err)
		}
		if ok {
			var ring []key
			if err := json.Unmarshal(have, &ring); err != nil || len(ring) == 0 {
				return nil, fmt.Errorf("reading the encryption key: the record %s in the store is damaged; remove it to begin with a new key, or set auth.encryption_keys", ringKey)
			}
			return ring, nil
		}
		created, err := v.store.Create(ctx, ringKey, raw, 0)
		if err != nil {
			return nil, fmt.Errorf("keeping the encryption key: %w", err)
		}
		if created {
			return mine, nil
		}
	}
	return nil, errors.New("keeping the encryption key: the store takes it and loses it again")
}

// merge puts the ring of the store first and keeps what else can be opened.
func merge(found, mine []key) []key {
	out := append([]key(nil), found...)
	for _, k := range mine {
		known := false
		for _, f := range found {
			known = known || f.ID == k.ID
		}
		if !known {
			out = append(out, k)
		}
	}
	return out
}

// lost makes the next use ask the store again, unless that was a moment ago.
func (v *Vault) lost() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.given || v.now().Sub(v.checked) < ringRetry {
		return false
	}
	v.checked = time.Time{}
	return true
}
