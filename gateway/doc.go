// Package gateway is what clients talk to: the MCP endpoint of both protocol
// eras, what each caller sees of the catalogue, the portal's own tools, the
// door through which every call to an upstream goes, and the web pages.
//
//	endpoint.go   HTTP: POST, GET, DELETE of /mcp, eras, headers, statuses
//	stream.go     one answer to a POST: JSON, or server-sent events when needed
//	session.go    2025 sessions, kept in the store and in memory
//	listen.go     list_changed to clients: GET streams and subscriptions/listen
//	subscriptions.go  updated resources to clients, on those streams
//	methods.go    what each MCP method does
//	modes.go      query parameters → mode
//	view.go       what one caller sees: mode + access + toggles + snapshot
//	door.go       THE one way to an upstream: resolve, permit, guard, send, record
//	ask.go        asking a person: elicitation, input_required, a URL
//	tools.go      definitions of the portal_* tools
//	query.go      portal_query_tools
//	execute.go    portal_execute: one tool, code, resume
//	runs.go       scripts under way and those that wait
//	plan.go       what a dry run collects, and when its stage is over
//	planlonger.go stages made longer by stand-ins for answers
//	plancall.go   the plan of a direct call
//	planapply.go  applying a plan: each step once, whatever dies
//	planreport.go what became of a plan, and its run going on
//	planpreview.go  what is there before a step, and taking steps back
//	planweb.go    the page of a plan
//	attend.go     answering with the end of a run, or with what it waits for
//	resume.go     going on with a paused run
//	result.go     what goes back of a run
//	inherit.go    taints that go with what was read to another session
//	exchange.go   one call and the rounds of questions that its server wants
//	rounds.go     approved calls whose server asks for more input
//	parked.go     calls that wait for the retry of a 2026-07-28 client
//	parked_elsewhere.go  those that another replica holds
//	tasks.go      ids of tasks, and tasks/*
//	links.go      URIs in results that must lead to their server
//	unasked.go    what servers say outside calls
//	capabilities.go  what is declared to clients
//	toggles.go    servers a user has switched off
//	inflight.go   requests under way: cancelling, draining
//	bus.go        what replicas tell each other
//	elsewhere.go  resuming a run that another replica holds
//	marks.go      what a client that comes back to its stream has missed
//	pace.go       giving up clients that do not read
//	process.go    what this process uses of its machine
//	load.go       how much one user, and all, may hold at once
//	request.go    what is known of one request
//	announce.go   telling a chat of approvals
//	auditline.go  what the audit says of a call
//	callslist.go  the list of calls that comes back of a run
//	connect.go    the pages where people sign in at servers
//	contain.go    panics cost their own call only
//	explain.go    what mcp-portal guard asks: decisions, tools
//	gateway.go    Gateway: its parts, its routes, a new configuration
//	guard.go      what the guard is told of a call, and filters
//	httpapi.go    documents and requests of HTTP APIs in code
//	kept.go       values too large for an answer
//	madecalls.go  what a run has called, and what may be sent again
//	passing.go    passing a request on to the replica that can answer
//	personal.go   lists of servers that are one user's
//	pins.go       changed definitions: page and command
//	planask.go    asking about a plan in the client
//	recording.go  runs in the store: kept, sealed, begun again
//	runlogins.go  runs that wait for a sign-in
//	seen.go       what results were seen to look like
//	signin.go     asking for a sign-in in the middle of a call
//	waiting.go    the number beside "Approvals"
//	webclients.go routes of sign-in, and pages about clients
//	webrun.go     the page of what one run waits for
//	withheld.go   tools that a caller cannot use now, and why
//	paramheaders.go  arguments that travel in headers, too
//	web.go        pages, sign-in, status
package gateway
