package authserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	signingRecord = "signing"
	keyAge        = 30 * 24 * time.Hour // then a new key signs
	keyKept       = 26 * time.Hour      // how long the one before still verifies: longer than any access token
	keyRecheck    = time.Minute         // how often the store is asked whether there is another key
	keyMissing    = 5 * time.Second     // and when a token names a key that is not known
)

// signingKey is one ES256 key.
type signingKey struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Sealed  string    `json:"sealed"` // PKCS #8, by the vault

	private *ecdsa.PrivateKey
}

// keyring is the keys as this replica knows them. They are in the store, so
// that every replica can verify what another one issued.
type keyring struct {
	mu      sync.Mutex
	keys    []signingKey // the newest last
	checked time.Time
}

// current gives the key that signs now.
func (k *keyring) current(ctx context.Context, s *Server) (signingKey, error) {
	ring, err := k.all(ctx, s)
	if err != nil {
		return signingKey{}, err
	}
	return ring[len(ring)-1], nil
}

// find gives the key of that id; ok is false if there is none.
func (k *keyring) find(ctx context.Context, s *Server, id string) (key signingKey, ok bool, err error) {
	for range 2 {
		ring, err := k.all(ctx, s)
		if err != nil {
			return key, false, err
		}
		if i := slices.IndexFunc(ring, func(c signingKey) bool { return c.ID == id }); i >= 0 {
			return ring[i], true, nil
		}
		k.mu.Lock()
		recent := s.now().Sub(k.checked) < keyMissing
		if !recent {
			k.checked = time.Time{}
		}
		k.mu.Unlock()
		if recent {
			break // anyone can send tokens with invented key ids
		}
	}
	return key, false, nil
}

// all gives the keys, at least one. While the store is away those known go on.
func (k *keyring) all(ctx context.Context, s *Server) ([]signingKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := s.now()
	if len(k.keys) > 0 && now.Sub(k.checked) < keyRecheck {
		return k.keys, nil
	}
	ring, err := s.syncKeys(ctx, now)
	if err != nil {
		if len(k.keys) == 0 {
			return nil, err
		}
		s.log.DebugContext(ctx, "signing keys not checked", "error", err)
		ring = k.keys
	}
	k.keys, k.checked = ring, now
	return ring, nil
}

// syncKeys reads the keys, and makes a new one when that is due or what is
// there cannot be opened any more.
func (s *Server) syncKeys(ctx context.Context, now time.Time) ([]signingKey, error) {
	for range 5 {
		list, raw, found, err := load[[]signingKey](ctx, s.store, signingRecord)
		if err != nil {
			return nil, fmt.Errorf("reading the signing keys: %w", err)
		}
		ring, err := s.openKeys(ctx, list)
		if err != nil {
			return nil, err
		}
		if n := len(ring); n > 0 && now.Sub(ring[n-1].Created) < keyAge {
			return ring, nil
		}
		// A key that follows another verifies until all that it signed is over.
		ring = slices.DeleteFunc(ring, func(c signingKey) bool { return now.Sub(c.Created) > keyAge+keyKept })
		fresh, err := s.newKey(ctx, now)
		if err != nil {
			return nil, err
		}
		ring = append(ring, fresh)
		next, err := json.Marshal(ring)
		if err != nil {
			return nil, fmt.Errorf("writing the signing keys: %w", err)
		}
		var won bool
		if found {
			won, err = s.store.Swap(ctx, signingRecord, raw, next, 0)
		} else {
			won, err = s.store.Create(ctx, signingRecord, next, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("writing the signing keys: %w", err)
		}
		if won {
			s.log.InfoContext(ctx, "a new key signs access tokens", "kid", fresh.ID)
			return ring, nil
		}
	}
	return nil, errors.New("writing the signing keys: other replicas keep changing them")
}

func (s *Server) openKeys(ctx context.Context, list []signingKey) (out []signingKey, err error) {
	for _, k := range list {
		der, _, err := s.vault.Box("signing").Open(ctx, signingRecord+":"+k.ID, k.Sealed)
		if lostSeal(err) {
			s.log.WarnContext(ctx, "a signing key cannot be opened; clients with its tokens refresh them", "kid", k.ID, "error", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening the signing keys: %w", err)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		private, ok := parsed.(*ecdsa.PrivateKey)
		if err != nil || !ok {
			return nil, fmt.Errorf("opening the signing keys: the record %s in the store is damaged; remove it to begin with a new key", signingRecord)
		}
		k.private = private
		out = append(out, k)
	}
	return out, nil
}

func (s *Server) newKey(ctx context.Context, now time.Time) (signingKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signingKey{}, fmt.Errorf("making a signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return signingKey{}, fmt.Errorf("making a signing key: %w", err)
	}
	k := signingKey{ID: now.UTC().Format("20060102") + "-" + rand.Text()[:8], Created: now, private: private}
	if k.Sealed, err = s.vault.Box("signing").Seal(ctx, signingRecord+":"+k.ID, der); err != nil {
		return signingKey{}, fmt.Errorf("sealing a signing key: %w", err)
	}
	return k, nil
}
