//go:build race

package confine

// withRace: the race detector's shadow memory is larger than any useful limit.
const withRace = true
