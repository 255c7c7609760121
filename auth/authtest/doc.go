// Package authtest gives tests identity providers on loopback and a browser
// without a screen.
//
//	idp.go       StartFakeIdP: in this process, can rotate keys, lie and be down
//	provider.go  StartProvider: a certified OpenID provider (Node), proves that the real flow works
//	browser.go   Browser: cookies, redirects, the provider's sign-in form
//
// It is for tests only; nothing of the portal's program imports it.
package authtest
