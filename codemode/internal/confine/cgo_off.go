//go:build !cgo

package confine

const withCgo = false
