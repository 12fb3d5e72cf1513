//go:build !race

package cell

const raced = false
