// Package worker is the untrusted side of the sandbox: one confined process that
// runs one script at a time in a fresh goja runtime. Nothing here protects the
// gateway: every limit is enforced again on the other side of the socket, and
// the checks in this package exist to end a run early with a good message.
//
//	main.go      start: confine, warm up, READY, then one run after another
//	link.go      the socket and the control pipe
//	run.go       one run: event loop, drain, result
//	watch.go     processor time, memory, orders of the gateway
//	api.go       codemode, server namespaces, calls, queries
//	console.go   console, timers
//	source.go    what the model wrote → the code in it (fences, JSON, export)
//	compile.go   goja first, esbuild where needed
//	entry.go     which value a program means
//	language.go  other languages, imports
//	parse.go     JSON → JavaScript values, integers exact
//	unwrap.go    result of a tool → value of a script
//	write.go     JavaScript values → JSON within a budget
//	failure.go   errors in the user's coordinates
//	hints.go     the next step for errors that models run into
//	emptied.go   empty values of code that read fields nobody has
//	absent.go    asking whether a tool is there
//	emptyfields.go  fields of a value that were undefined everywhere
//	httpapi.go   codemode.spec and codemode.request
//	jsonparse.go JSON.parse that keeps every digit
//	mistakes.go  promises nobody awaited, where the language is silent
//	traps.go     the same for their members
//	walk.go      the syntax tree, node by node
//	names.go     the tools of a run in every spelling
//	prelude.go   loading prelude.js
//	readings.go  code inside JSON text, CommonJS
//	writebytes.go  bytes and content blocks in the value
//	guard.go     guarded runs: the code asks before it tests
//	guard.js     built-ins that ask before they look
//	standin.go   what stands for an answer that is known later
//	prelude.js   what goja lacks; code from strings is switched off
//
// The process is single-threaded on purpose: JavaScript, then flush, then one
// blocking read, then one promise is settled.
package worker
