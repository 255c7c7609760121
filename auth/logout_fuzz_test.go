package auth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// Nothing but what the IdP signed ends a sign-in, and nothing that somebody
// sends is the portal's own failure.
func FuzzLogoutToken(f *testing.F) {
	idp := authtest.StartFakeIdP(f)
	r := newRig(f, oidcConfig(idp))
	claims := map[string]any{"iss": idp.Issuer, "aud": idp.ClientID, "sub": "alice", "iat": r.clock.now().Unix(), "exp": r.clock.now().Add(time.Minute).Unix(), "jti": "one",
		"events": map[string]any{logoutEvent: map[string]any{}}}
	idp.SetClock(r.clock.now)
	good := idp.Sign("logout+jwt", claims)
	send := func(form string) int {
		req := httptest.NewRequest(http.MethodPost, portalURL+"/auth/backchannel-logout", strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		r.BackChannelLogout(w, req)
		return w.Code
	}
	if status := send(url.Values{"logout_token": {good}}.Encode()); status != http.StatusOK {
		f.Fatalf("the good one: %d", status)
	}
	f.Add("logout_token=" + url.QueryEscape(good))
	f.Add("logout_token=" + url.QueryEscape(fmt.Sprintf("%s.%s.", b64(map[string]any{"alg": "none"}), b64(claims))))
	f.Add("logout_token=" + url.QueryEscape(good+"."+good))
	f.Add("logout_token=e30.e30.e30&logout_token=" + url.QueryEscape(good))
	f.Add("logout_token=%zz")
	f.Add("")
	f.Fuzz(func(t *testing.T, form string) {
		// The good one was used: its second use is refused, too.
		if status := send(form); status != http.StatusBadRequest {
			t.Fatalf("%q is answered %d", form, status)
		}
	})
}
