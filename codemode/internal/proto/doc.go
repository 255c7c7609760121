// Package proto is the language between the gateway and a sandbox worker: frames
// on one socket, and short orders on a control pipe.
//
//	gateway                                   worker
//	   │ ◀───────────── READY ────────────────── │  which isolation layers hold
//	   │ ────────────── RUN ────────────────────▶│  code, tools, limits
//	   │ ◀─ CALL, QUERY (id) ─ LOG ───────────── │
//	   │ ◀──────────── IDLE (n) ──────────────── │  nothing to do without an answer
//	   │ ── RESULT, ERROR (id) ────────────────▶ │
//	   │ ◀───────────── DONE ─────────────────── │
//	   │ ══ control pipe: stop(run, reason), EOF = die ═▶
//
// A frame is a 12 byte header (length u32, kind u8, three zero bytes, id u32,
// little endian) and its payload. The gateway trusts nothing that arrives:
// every kind has its own size limit, checked before the payload is read.
package proto
