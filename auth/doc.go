// Package auth knows who makes a request and what that one may use. It is an
// OAuth protected resource for MCP clients (tokens of the company IdP and
// service tokens of machines), a relying party for the portal's own pages
// (OpenID Connect code flow, cookie session), and the rules which servers and
// tools a caller may use. It knows nothing of MCP methods, and no token ever
// leaves it: not in an error, a log line or an answer.
//
// What a request to /mcp passes:
//
//	GuardHost      Host and Origin known?              hosts.go, cors.go
//	Authenticate   which credential is it?             authenticate.go, bearer.go
//	  ├ mcpp_st_…  service token                       service.go
//	  ├ a.b.c      access token of the IdP             token.go, claims.go
//	  │              └ keys, discovery, IdP down       idp.go, keys.go
//	  └ mode none  the one user of development mode    dev.go
//	Challenge      what a refused client reads         challenge.go, metadata.go, errors.go
//	Access         may it use this server, this tool?  access.go
//
// What a browser passes:
//
//	Login, Callback, Logout   sign-in at the IdP       login.go, callback.go, returnto.go, pages.go
//	Browser, CheckCSRF        who is it, did its own page ask?  session.go, csrf.go, cookies.go, dev.go
//
// Settings are swapped as a whole (settings.go, Auth.SetConfig); a request
// sees one set from beginning to end. Nothing here contacts the IdP before a
// request needs it, so the portal starts while the IdP is down and heals by
// itself; Auth.Status says how it stands.
package auth
