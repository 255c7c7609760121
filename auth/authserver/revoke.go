package authserver

import (
	"net/http"
	"strings"
)

// revoke ends the grant that a token belongs to (RFC 7009). A client that
// throws away one of its tokens has no use for the other. Tokens that are not
// known are no error: they are not valid either.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	set := s.state.Load()
	ctx := r.Context()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if s.limited(s.limits.token, w, r) {
		return
	}
	form, err := tokenForm(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	who, err := credentials(r, form)
	var c *Client
	if err == nil {
		c, err = s.proven(ctx, set, who)
	}
	token := form.Get("token")
	if err == nil && token == "" {
		err = invalidRequest("token is missing")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	var grant string
	if strings.HasPrefix(token, refreshPrefix) {
		rec, _, ok, err := load[refreshRecord](ctx, s.store, refreshKey(token))
		if err != nil {
			s.refuse(w, r, internal("reading a refresh token", err))
			return
		}
		if ok {
			grant = rec.Grant
		}
	} else if t, err := s.claims(ctx, set, token); err == nil {
		grant = t.Grant
	}
	if grant != "" {
		g, _, ok, err := load[Grant](ctx, s.store, grantKey(grant))
		if err == nil && ok && g.Client == c.ID {
			_, err = s.endGrant(ctx, grant, "the client revoked it")
		}
		if err != nil {
			s.refuse(w, r, internal("ending a grant", err))
			return
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}
