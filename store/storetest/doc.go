// Package storetest holds what every backend of package store must do, as one
// suite of tests, and starts real Redis servers for tests of any room:
//
//	Run (suite.go, pubsub.go)   the suite, given a function that opens a store
//	StartRedis (redis.go)       a redis-server that can be killed and restarted
package storetest
