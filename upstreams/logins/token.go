package logins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

// client is the portal as an authorization server knows it.
type client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
	Method string `json:"method"` // at the token endpoint: none, client_secret_basic, client_secret_post, private_key_jwt
	// Audience is whom the assertions of private_key_jwt name. The key itself is
	// never kept: it is that of the configuration.
	Audience string `json:"aud,omitempty"`
	key      *clientkey.Key
	// Registered means that the portal registered itself, so that it can do so
	// again when the authorization server has forgotten it.
	Registered bool `json:"registered,omitempty"`
}

// methodFor chooses how a client with a secret proves itself.
func methodFor(secret string, supported []string) string {
	switch {
	case secret == "":
		return "none"
	case len(supported) > 0 && !slices.Contains(supported, "client_secret_basic") && slices.Contains(supported, "client_secret_post"):
		return "client_secret_post"
	}
	return "client_secret_basic"
}

// tokens is a successful answer of a token endpoint.
type tokens struct {
	Access  string
	Refresh string
	Expires time.Time // zero: it did not say
	Scope   string    // "": as asked
	Issued  string    // issued_token_type (RFC 8693)
}

// refused is an error answer of a token endpoint (RFC 6749 section 5.2). It
// will not pass by itself.
type refused struct {
	Code   string
	Text   string
	Status int
}

func (e *refused) Error() string {
	s := "the authorization server answered " + show(e.Code)
	if e.Text != "" {
		s += " " + show(e.Text)
	}
	return s
}

// passes reports whether a refusal may be over by itself.
func (e *refused) passes() bool {
	return slices.Contains([]string{"temporarily_unavailable", "server_error", "slow_down"}, e.Code)
}

// tokenRequest posts to a token endpoint. secrets are kept out of errors, and
// whatever the form holds is, too. A *refused error is final, others may pass.
func (l *Logins) tokenRequest(ctx context.Context, s config.Server, endpoint string, c client, form url.Values) (*tokens, error) {
	form, err := l.prove(s, c, form)
	if err != nil {
		return nil, err
	}
	b, status, err := l.postForm(ctx, s, endpoint, c, form)
	if err != nil {
		return nil, err
	}
	return parseTokens(b, status, l.now(), func(text string) string { return clean(text, c, form) })
}

// prove adds to a request what proves the portal by a key.
func (l *Logins) prove(s config.Server, c client, form url.Values) (url.Values, error) {
	if c.Method != clientkey.Method {
		return form, nil
	}
	key := c.key
	if key == nil {
		if s.Auth.PrivateKey == "" {
			return nil, fmt.Errorf("the sign-in was made with the private_key of server %s, and the configuration has none any more", s.ID)
		}
		var err error
		if key, err = clientkey.New(s.Auth.PrivateKey, s.Auth.PrivateKeyID); err != nil {
			return nil, fmt.Errorf("auth.%w", err)
		}
	}
	out := url.Values{}
	maps.Copy(out, form)
	if err := key.Prove(out, c.ID, c.Audience, l.now()); err != nil {
		return nil, err
	}
	return out, nil
}

// parseTokens reads an answer of a token endpoint. clean keeps secrets out of
// what it says.
func parseTokens(b []byte, status int, now time.Time, clean func(string) string) (*tokens, error) {
	var a struct {
		Access  string          `json:"access_token"`
		Type    string          `json:"token_type"`
		Refresh string          `json:"refresh_token"`
		Expires json.RawMessage `json:"expires_in"`
		Scope   json.RawMessage `json:"scope"`
		Issued  string          `json:"issued_token_type"`
		Error   string          `json:"error"`
		Text    string          `json:"error_description"`
	}
	if json.Unmarshal(b, &a) != nil {
		return nil, fmt.Errorf("the token endpoint answered HTTP %d without the JSON that was expected", status)
	}
	switch {
	case status >= 500 || status == http.StatusTooManyRequests:
		return nil, fmt.Errorf("the token endpoint answered HTTP %d", status)
	case a.Error != "": // some answer so with HTTP 200
		return nil, &refused{Code: clean(a.Error), Text: clean(a.Text), Status: status}
	case status != http.StatusOK && status != http.StatusCreated:
		return nil, fmt.Errorf("the token endpoint answered HTTP %d", status)
	case a.Access == "" || !headerSafe(a.Access):
		return nil, errors.New("the token endpoint gave no token that can be used")
	case a.Type != "" && !strings.EqualFold(a.Type, "bearer") && !strings.EqualFold(a.Type, "N_A"):
		return nil, fmt.Errorf("the token endpoint gave a token of the type %s, which the portal does not speak", show(a.Type))
	}
	t := &tokens{Access: a.Access, Refresh: a.Refresh, Scope: scopeText(a.Scope), Issued: a.Issued}
	var seconds json.Number
	if json.Unmarshal(a.Expires, &seconds) == nil || json.Unmarshal([]byte(strings.Trim(string(a.Expires), `"`)), &seconds) == nil {
		if f, err := seconds.Float64(); err == nil && f > 0 && f < 1e10 {
			t.Expires = now.Add(time.Duration(min(f, 10*365*24*3600)) * time.Second)
		}
	}
	return t, nil
}

// scopeText is the scope of an answer, "" if it names none. It is a text, but
// some write a list, and that must not cost a sign-in.
func scopeText(raw json.RawMessage) string {
	var text string
	var list []string
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &list) == nil {
		text = join(list)
	}
	return text
}

// postForm sends a form as a client of the authorization server.
func (l *Logins) postForm(ctx context.Context, s config.Server, endpoint string, c client, form url.Values) (body []byte, status int, err error) {
	if err := l.checkEndpoint(s, endpoint); err != nil {
		return nil, 0, fmt.Errorf("the token endpoint %w", err)
	}
	hc, err := l.client(s, endpoint)
	if err != nil {
		return nil, 0, err
	}
	sent := url.Values{}
	for k, v := range form {
		sent[k] = v
	}
	if c.Method == "none" || c.Method == "client_secret_post" {
		sent.Set("client_id", c.ID)
	}
	if c.Method == "client_secret_post" {
		sent.Set("client_secret", c.Secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(sent.Encode()))
	if err != nil {
		return nil, 0, errors.New("the address of the token endpoint is not a URL")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if c.Method == "client_secret_basic" {
		r.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret)) // RFC 6749 section 2.3.1
	}
	resp, err := hc.Do(r)
	if err != nil {
		return nil, 0, fmt.Errorf("the token endpoint cannot be reached: %s", clean(plain(err).Error(), c, form))
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, fmt.Errorf("the answer of the token endpoint broke off: %w", plain(err))
	}
	return b, resp.StatusCode, nil
}

// headerSafe reports whether a token can stand in a header as it is (RFC 6750
// section 2.1, read generously).
func headerSafe(t string) bool {
	return len(t) <= 64<<10 && !strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// clean keeps what was sent in confidence out of a text of the other side.
func clean(text string, c client, form url.Values) string {
	secrets := []string{c.Secret, c.ID + ":" + c.Secret, url.QueryEscape(c.ID) + ":" + url.QueryEscape(c.Secret)}
	if c.Secret == "" {
		secrets = nil
	}
	for _, k := range []string{"refresh_token", "code", "code_verifier", "token", "subject_token", "assertion", "client_assertion", "client_secret"} {
		secrets = append(secrets, form[k]...)
	}
	for _, v := range secrets {
		for _, form := range config.Secret(v).Forms() {
			text = strings.ReplaceAll(text, form, "[redacted]")
		}
	}
	return text
}
