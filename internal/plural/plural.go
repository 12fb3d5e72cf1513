// Package plural lets the words of a message agree with its numbers.
package plural

import "fmt"

// Of returns n and one, or n and many if n is not 1: "1 line was", "2 lines were".
func Of[N int | int64 | uint32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}
