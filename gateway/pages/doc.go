// Package pages renders the portal's own web pages: plain HTML made on the
// server, readable without JavaScript, with nothing loaded from elsewhere. It
// has no handlers, no sessions and no rights: the gateway gathers the data,
// checks who may see it, and calls one method per page.
//
//	Home        endpoint, how to add it to a client, who you are   home.go, clients.go
//	Approval    one call that waits for a person                   approval.go
//	Approvals   the calls of one user                              approval.go
//	Run         all calls with which one script waits              run.go
//	Servers     servers, their state and why, switches             servers.go
//	Message     a sentence with a status: not found, signed out    pages.go
//	Assets      the one script and the icon, under /assets/        assets.go
//	            headers of every page: headers.go
//
// # Forms the gateway has to answer
//
// Every form is a POST of application/x-www-form-urlencoded and carries the
// field csrf with Frame.CSRF as its value; check it before anything else.
//
//	Frame.SignOut            csrf
//	ApprovalData.Action      csrf, decision = "approve" or "deny", note (may be empty)
//	RunData.Action           csrf, shown and call = ids (all that the page showed, and the ticked ones), decision = "approve", "some" or "deny", note
//	Toggle.Action            csrf, server = id, enabled = "true" or "false"
//
// Any other value of decision or enabled is a bad request, never a default.
// Answer a good form with 303 See Other to a page, and one without a valid
// session with Message (401) and a link, not with a redirect to the IdP: the
// form-action of these pages lets no form lead elsewhere. Only Home has no
// form-action, because signing out may go on to the IdP, and browsers apply
// form-action to the whole chain of redirects.
//
// # What a person sees
//
// Everything that servers, clients and users say is escaped, and characters
// that do not show are written as escapes (writeguard.Visible), so that what
// is approved is what is read. Arguments are never shortened.
package pages
