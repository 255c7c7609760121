// Package codemode runs the scripts of portal_execute. A script is hostile by
// assumption: it runs in a confined worker process of the same binary, and this
// side enforces every budget again against a worker that may have been taken
// over. There is no in-process fallback.
//
//	Pool.Run ── queue.go   whose turn: runs and waiting places per user
//	   │
//	   ├─ pool.go ─ spawn*.go   workers: warm, owned by a user, retired
//	   │
//	   └─ run.go     one run: frames in, calls out through Host, clock, kill
//	        ├─ calls.go    calls in parallel, records, budgets
//	        │  aside.go    those that wait for a person
//	        ├─ standin.go  answers that are known later, and references to them
//	        └─ ended.go    why a worker died, in words for the model
//	status.go    what the status page shows
//	shape.go     a value → valid JSON within a token budget
//	declare*.go, schematype.go   JSON Schema → TypeScript declarations
//	worker.go    the hidden worker command
//
//	internal/proto     frames between the two sides
//	internal/confine   rlimits, Landlock, seccomp
//	internal/worker    engine, language front end, script API
//
// The package knows nothing of HTTP and nothing of policy: a call of a script
// goes to Host, which is the gateway's door.
package codemode
