//go:build !race

package codemode

const withRace = false
