//go:build race

package codemode

// withRace: what the race detector remembers counts as this process's memory,
// and is not given back.
const withRace = true
