package authserver

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// token is the token endpoint (RFC 6749 section 3.2). The client proves itself
// before a code or refresh token is touched: clients try again in another way.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	set := s.state.Load()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if s.limited(s.limits.token, w, r) {
		return
	}
	form, err := tokenForm(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	out, err := s.tokens(r.Context(), set, r, form)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, out)
}

func (s *Server) tokens(ctx context.Context, set *settings, r *http.Request, form url.Values) (*tokens, error) {
	who, err := credentials(r, form)
	if err != nil {
		return nil, err
	}
	kind := form.Get("grant_type")
	switch kind {
	case "":
		return nil, invalidRequest("grant_type is missing")
	case "client_credentials":
		return s.machineToken(r, set, who, form)
	case "authorization_code", "refresh_token", grantAssertion:
	default:
		return nil, fail(400, "unsupported_grant_type", "grant_type must be authorization_code, refresh_token, client_credentials or %s", grantAssertion)
	}
	c, err := s.proven(ctx, set, who)
	if err != nil {
		return nil, err
	}
	if err := checkResources(set, form["resource"]); err != nil {
		return nil, err
	}
	switch kind {
	case "refresh_token":
		return s.refresh(ctx, set, c, form)
	case grantAssertion:
		return s.vouched(ctx, set, c, form)
	}
	return s.exchange(ctx, set, c, form)
}

// machineToken gives a machine a short-lived token for its service token
// (RFC 6749 section 4.4): its id is the client_id, itself the client_secret.
func (s *Server) machineToken(r *http.Request, set *settings, who proof, form url.Values) (*tokens, error) {
	if err := checkResources(set, form["resource"]); err != nil {
		return nil, err
	}
	var ends time.Time
	err := error(invalidClient("client_secret is missing"))
	for _, secret := range who.secrets {
		if ends, err = s.machine(r, who.id, secret); err == nil {
			break
		}
	}
	if err != nil {
		return nil, &Error{Status: 401, Code: "invalid_client", Description: "client_id and client_secret are not those of a service token; the id is the client_id, the whole token the client_secret", cause: err}
	}
	life := set.cfg.Auth.Tokens.Access
	if !ends.IsZero() {
		life = min(life, ends.Sub(s.now()))
	}
	if life < time.Second {
		return nil, invalidClient("the service token has expired")
	}
	access, err := s.mint(r.Context(), set, accessClaims{Subject: "svc:" + who.id, Client: who.id, Scope: ScopeAll}, life)
	if err != nil {
		return nil, err
	}
	return &tokens{Access: access, Type: "Bearer", Expires: int64(life / time.Second), Scope: ScopeAll}, nil
}
