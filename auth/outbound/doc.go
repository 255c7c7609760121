// Package outbound is the one HTTP client for addresses that someone else
// named: client metadata documents, discovery documents of upstreams and of
// what they point to, and the endpoints in them. Whoever can name such an
// address must not be able to make the portal reach into its own network
// (server-side request forgery), keep it busy, or fill its memory.
//
//	client.go   New: https only, no proxies, no redirects, limits of time and size
//	address.go  which resolved addresses may be connected to
//	errors.go   what callers may show
//
// Addresses that the admin wrote into portal.yaml, such as the IdP's, need
// none of this; Limit alone bounds what they answer.
package outbound
