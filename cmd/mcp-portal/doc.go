// Command mcp-portal runs the portal and its command line tools.
//
//	main.go      commands, exit codes
//	portal.go    wiring of the rooms: one running portal
//	serve.go     serve: the portal from a configuration file
//	demo.go      demo: the portal with the example company
//	client.go    a connection to a portal, running or started for one command
//	tools.go     tools: what a user sees
//	call.go      call: one tool, or a script
//	check.go     check: validate a configuration
//	checklive.go check --live: what the running portal says
//	guard.go     guard explain: why a call is decided as it is
//	guardtest.go guard test: tables of tests of a policy
//	guardsuggest.go  guard suggest: a starting policy for a server
//	guardreplay.go  guard replay: past calls under a changed policy
//	pins.go      pins: changed definitions, and releasing them
//	key.go       key: make an encryption key
//	relaycancel.go  telling servers of 2025 that a call was cancelled
//	private.go   how only this process reaches a portal started for it
//	stdio.go     stdio: a client that only starts programs
//	relay.go     what passes between standard input and output and a portal
//	relaypost.go one message to the portal, and what to make of its answer
//	relayheaders.go  arguments that travel in headers, which stdio has not
//	relaysession.go  the session of the 2025 revisions, streams of notices
//	token.go     token: make a service token
package main
