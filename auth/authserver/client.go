package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// Kind says how a client is known.
type Kind string

const (
	KindStatic     Kind = "static"     // the admin wrote it into portal.yaml
	KindRegistered Kind = "registered" // it registered itself: its name is what it says
	KindDocument   Kind = "document"   // its id is the URL of its metadata: its host is proven
)

// Client is an MCP client that wants to sign people in.
type Client struct {
	ID         string
	Kind       Kind
	Name       string // as it calls itself
	Redirects  []string
	SecretHash string // "sha256:…"; empty: a public client
	NoConsent  bool   // the admin's choice
	Asserts    bool   // may bring assertions of the IdP; the admin's choice
}

// Host is the host of a client's metadata document, "" for other kinds.
func (c *Client) Host() string {
	if c.Kind != KindDocument {
		return ""
	}
	u, err := url.Parse(c.ID)
	if err != nil {
		return ""
	}
	return u.Host
}

const (
	registeredPrefix = "mcpp." // of client ids that carry their registration
	maxClientID      = 8 << 10
)

// registration is what a registered client's id holds, sealed. Names are short
// since the id travels in URLs.
type registration struct {
	Name      string   `json:"n,omitempty"`
	Redirects []string `json:"r"`
	Secret    string   `json:"s,omitempty"` // hash
	At        int64    `json:"t"`           // unix time
}

// client finds out who a client_id is. Errors are *Error: invalid_client when
// it is nobody, so that clients register anew (RFC 6749 section 5.2).
func (s *Server) client(ctx context.Context, set *settings, id string) (*Client, error) {
	return s.lookup(ctx, set, id, false)
}

// lookup is client. With old a metadata document that cannot be fetched now may
// be out of date.
func (s *Server) lookup(ctx context.Context, set *settings, id string, old bool) (*Client, error) {
	switch {
	case id == "":
		return nil, invalidRequest("client_id is missing")
	case len(id) > maxClientID:
		return nil, invalidClient("the client_id is too long")
	case strings.HasPrefix(id, registeredPrefix):
		return s.registered(ctx, set, id)
	case strings.HasPrefix(id, "https://") || strings.HasPrefix(id, "http://"):
		if !set.cfg.Auth.Clients.MayPublish() {
			return nil, invalidClient("this portal takes no client metadata documents (auth.clients.metadata_documents)")
		}
		return s.document(ctx, set, id, old)
	}
	if c := set.static[id]; c != nil {
		return c, nil
	}
	return nil, invalidClient("the client_id is not known here; register again")
}

// takes reports whether the configuration still allows a client that it allowed
// once, as far as its id tells.
func (set *settings) takes(id string) bool {
	switch {
	case strings.HasPrefix(id, registeredPrefix):
		return set.cfg.Auth.Clients.MayRegister()
	case strings.HasPrefix(id, "https://") || strings.HasPrefix(id, "http://"):
		return set.cfg.Auth.Clients.MayPublish()
	}
	return set.static[id] != nil
}

func (s *Server) registered(ctx context.Context, set *settings, id string) (*Client, error) {
	if !set.cfg.Auth.Clients.MayRegister() {
		return nil, invalidClient("clients cannot register themselves here any more; ask the portal's admin for a client id")
	}
	raw, _, err := s.vault.Box("client").Open(ctx, set.origin, strings.TrimPrefix(id, registeredPrefix))
	switch {
	case lostSeal(err):
		return nil, &Error{Status: 401, Code: "invalid_client", Description: "the client_id is not known here; register again", cause: err}
	case err != nil:
		return nil, internal("reading the client_id", err)
	}
	var reg registration
	if err := json.Unmarshal(raw, &reg); err != nil {
		return nil, internal("reading the client_id", err)
	}
	return &Client{ID: id, Kind: KindRegistered, Name: reg.Name, Redirects: reg.Redirects, SecretHash: reg.Secret}, nil
}

// remember gives an id that holds the registration.
func (s *Server) remember(ctx context.Context, set *settings, reg registration) (string, error) {
	reg.At = s.now().Unix()
	raw, err := json.Marshal(reg)
	if err != nil {
		return "", internal("writing the client_id", err)
	}
	sealed, err := s.vault.Box("client").Seal(ctx, set.origin, raw)
	if err != nil {
		return "", internal("writing the client_id", err)
	}
	return registeredPrefix + sealed, nil
}

// cached reads a record that others may have to be made again.
func cached[T any](ctx context.Context, st store.Store, key string) (v T, ok bool) {
	raw, ok, err := st.Get(ctx, key)
	if err != nil || !ok {
		return v, false
	}
	return v, json.Unmarshal(raw, &v) == nil
}

// load reads a record; ok is false if there is none.
func load[T any](ctx context.Context, st store.Store, key string) (v T, raw []byte, ok bool, err error) {
	raw, ok, err = st.Get(ctx, key)
	if err != nil || !ok {
		return v, nil, false, err
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, nil, false, errors.New("a record in the store is damaged")
	}
	return v, raw, true, nil
}

func ttl(d time.Duration) time.Duration { return max(d, time.Second) }
