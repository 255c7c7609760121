// Package e2e tests the built program from outside: real clients of both
// protocol eras, real upstream servers, a real Redis, a real identity provider
// and a real browser.
//
//	harness_test.go    building and starting the program, clients
package e2e
