//go:build race

package cell

// raced: the race detector makes every step of a property test take several times as long.
const raced = true
