package auth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/mcp-portal/mcp-portal/config"
)

// workload lets machines in by tokens that their platform makes for them, such
// as those of Kubernetes service accounts and of GitHub Actions. Such an issuer
// signs for everyone on the platform; the claim rules say whose tokens count.
type workload struct {
	conf config.Workload
	idp  *idp
}

// workloads sets up the issuers, keeping keys of those that are known already.
func (a *Auth) workloads(list []config.Workload) ([]workload, error) {
	var out []workload
	for _, c := range list {
		if err := checkIssuer(c.Issuer); err != nil {
			return nil, fmt.Errorf("auth.workloads: issuer of %q: %w", c.ID, err)
		}
		if len(c.Claims) == 0 {
			return nil, fmt.Errorf("auth.workloads: %q has no claims, so every machine of its issuer would get in", c.ID)
		}
		w := workload{conf: c}
		known := out
		if s := a.state.Load(); s != nil {
			known = append(slices.Clone(out), s.jobs...)
		}
		for _, k := range known {
			if k.conf.Issuer == c.Issuer && k.conf.JWKS == c.JWKS {
				w.idp = k.idp
			}
		}
		if w.idp == nil {
			w.idp = newIDP(c.Issuer, a.http, a.log, a.now)
			w.idp.keysOnly, w.idp.keysAt = true, c.JWKS
		}
		out = append(out, w)
	}
	return out, nil
}

// jobOf reports whether an issuer is that of a workload.
func (s *settings) jobOf(issuer string) bool {
	return issuer != "" && slices.ContainsFunc(s.jobs, func(w workload) bool { return w.conf.Issuer == issuer })
}

// workloadToken judges a machine's token. The first rule of its issuer that
// fits says which machine it is.
func (s *settings) workloadToken(ctx context.Context, issuer, raw string, now time.Time) (*Principal, error) {
	var c claims
	meant := false // for this portal, as one of the rules has it
	for _, w := range s.jobs {
		if w.conf.Issuer != issuer {
			continue
		}
		if c == nil {
			got, err := w.idp.verified(ctx, raw, &oidc.Config{SkipClientIDCheck: true})
			if err != nil {
				return nil, tokenError(err)
			}
			if c = got; c.has("nonce") || c.has("events") {
				return nil, badToken("this is not a token of a machine", "send the token that the platform makes for this portal's audience", nil)
			}
		}
		expires, err := s.checkTimes(c, now)
		if err != nil {
			return nil, badToken(err.Error(), "get a new token from the platform", nil)
		}
		aud, err := c.texts("aud")
		if err != nil || !slices.ContainsFunc(aud, func(v string) bool { return canonicalAudience(v) == canonicalAudience(w.conf.Audience) }) {
			continue
		}
		meant = true
		if !w.fits(c) {
			continue
		}
		p := &Principal{ID: "svc:" + w.conf.ID, Kind: KindService, Name: w.conf.ID, Groups: slices.Clone(w.conf.Groups), Expires: expires}
		if len(w.conf.Servers) > 0 {
			p.Servers = slices.Clone(w.conf.Servers)
		}
		if len(w.conf.Tools) > 0 {
			p.Tools = slices.Clone(w.conf.Tools)
		}
		return p, nil
	}
	if !meant {
		return nil, badToken("the token was made for another audience than this portal", "ask the platform for a token with the audience of auth.workloads, by default "+s.resource(), nil)
	}
	e := denied("the token is valid, but no rule of auth.workloads is for this machine", "ask the portal's admin for a rule that matches the claims of this token")
	e.cause = fmt.Errorf("sub is %s", short(c.text("sub")))
	return nil, e
}

// fits reports whether every claim of the rule is there, as text, and matches
// one of its patterns.
func (w workload) fits(c claims) bool {
	for path, patterns := range w.conf.Claims {
		v, found := lookup(c, path)
		if !found {
			return false
		}
		have, err := textList(v, path)
		if err != nil || !slices.ContainsFunc(have, func(v string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { return config.Match(p, v) })
		}) {
			return false
		}
	}
	return true
}
