//go:build !race

package confine

const withRace = false
