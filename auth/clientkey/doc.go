// Package clientkey is how the portal proves itself as a client by a signed
// assertion in place of a secret (private_key_jwt: RFC 7523 section 2.2, OpenID
// Connect Core 1.0 section 9), at the company IdP and at the authorization
// servers of upstreams. The portal's own token endpoint does not take such
// proofs.
//
// An assertion holds for a minute, names one audience, and is made anew for
// each request, so that who gets to see one can do nothing with it elsewhere.
package clientkey
