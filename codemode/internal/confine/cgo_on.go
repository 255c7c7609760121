//go:build cgo

package confine

// withCgo: threads of a C library exist, so nothing can be set on all threads
// and the list of system calls is not ours to know.
const withCgo = true
