// Package writeguard decides what an agent may change and who says yes. It
// judges real tools under their real identity (server id, original name), so
// an alias, a mode or a meta-tool cannot change a verdict. It sends nothing
// and speaks no protocol: the gateway's door asks it before every call.
//
//	Call ──▶ Classify ──▶ Policy.Decide ──▶ allow ───────────────▶ send
//	         classify.go   policy.go   ├──▶ deny  ───────────────▶ refuse
//	         verbs.go                  └──▶ approve
//	                                          │
//	                     Approvals.Request ◀──┘   approvals.go
//	                       │  pending ──▶ Question … ParseAnswer   question.go
//	                       │             or the portal's page
//	                       │           ──▶ Approvals.Decide        decide.go
//	                       │           ──▶ Approvals.Wait          wait.go
//	                       ▼  approved
//	                     Approvals.Consume ──▶ send, once
//
//	guard.go      the types that pass between the parts
//	classify.go   read, write or destructive, and from which source
//	classes.go    a class for each action of a tool that does many things
//	verbs.go      the words that tighten a class
//	policy.go     rules and presets, compiled; the decision
//	known.go      what is worked out once per tool: its class, its rules
//	arguments.go  arguments as conditions see them
//	explain.go    why a decision is what it is
//	suggest.go    a starting policy for a server
//	replay.go     past decisions under another policy
//	canonical.go  arguments in one form, so that two calls can be compared
//	visible.go    text from others, with nothing hidden in it
//	approvals.go  asking: one record per call, shared by all replicas
//	index.go      which approvals a user has, and how many are open
//	decide.go     answering, and using an answer once
//	plan.go       plans: steps, their states, who decides them
//	plans.go      plans in the store, sealed; progress by compare-and-swap
//	settle.go     a person says what became of a step whose outcome is unknown
//	companion.go  calls made from a call: its preview, its undoing
//	wait.go       waiting for an answer
//	question.go   the question in a client's form, and reading its answer
//	condition.go  when: conditions in CEL, bounded
//	issue.go      what is wrong with a condition, in plain words
//	budget.go     budgets of rules
//	grant.go      a yes for several calls of one run
//	labels.go     labels of servers and tools
//	taints.go     what a session has read
//	filter.go     secrets and patterns in arguments and results
//
// What always holds: a class is only ever loosened by the administrator (a
// class in the configuration, or a server marked trust_annotations); whatever
// cannot be decided is denied; an approval releases exactly one call with
// exactly the arguments that were shown, once.
package writeguard
