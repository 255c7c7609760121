// Package authserver is the portal's own small authorization server: MCP
// clients sign people in here, while the company IdP says who the people are.
// It is OAuth 2.1 (authorization code with PKCE, refresh, client credentials)
// with what MCP asks for besides: metadata (RFC 8414), resource indicators
// (RFC 8707), issuer identification (RFC 9207), revocation (RFC 7009), client
// ID metadata documents, and dynamic registration (RFC 7591).
//
//	server.go      Server, its settings and the list of its addresses
//	metadata.go    RFC 8414 documents and the key set
//	resource.go    which resources it issues tokens for: one, under many names
//	scope.go       mcp, and mcp:<server> for less
//	client.go      who a client_id is: of the admin, registered, or a document
//	register.go    POST /register
//	document.go    client ID metadata documents
//	redirect.go    where a code may be sent
//	authorize.go   GET /authorize, and what waits for a person's yes
//	code.go        codes: once, and for whom they were made
//	token.go       POST /token
//	clientauth.go  how a client proves itself there
//	refresh.go     refresh tokens: rotation, reuse
//	grant.go       what a person has allowed a client: listing, ending
//	revoke.go      POST /revoke
//	access.go      access tokens: making and checking
//	keys.go        signing keys, shared by replicas
//	limit.go       how often one address may ask
//	vouched.go     tokens for people for whom the IdP vouches
//	random.go      secrets, and the digests the store keeps of them
//	errors.go      errors as OAuth has them
//
// The way of a sign-in: /authorize checks the client and keeps the request;
// the person signs in at the IdP as for any page of the portal; the page at
// /authorize/confirm shows who asks for what; only its form makes a code. So a
// session at the IdP, or here, gives no client anything by itself.
//
// In the store: authz:, code:, rt:, grant:, cimd:, signing. Codes and refresh
// tokens are there as digests only. Registered clients are nowhere: their id
// holds, sealed, all that there is to know.
package authserver
