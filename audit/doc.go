// Package audit writes one JSON line for every call that went through the
// door, and reads them again.
//
//	Record ──▶ queue ──▶ one goroutine ──▶ append to the file     writer.go
//	             │                           │
//	             │ full for too long         │ moved away: a new file;
//	             ▼                           ▼ disk error: kept and tried again
//	           counted as lost, logged, shown by Status
//
//	event.go   what a line holds
//	bound.go   how long a field may be
//	redact.go  masking of what looks like a credential, for the error texts
//	           here and in the logs of other rooms
//	read.go    streaming lines back, for the command line and for tests
//	writer.go  the file: queue, rotation, what is lost
//	find.go    which parts of a text look like a credential
//	arguments.go  the same for the arguments of a call
//	escape.go  characters that a terminal would act on
//
// A line never holds a credential, and never an argument value unless the
// configuration says so.
package audit
