// Package terminal tells terminals from other files.
package terminal

import "os"

// Red returns a line as a terminal shows it in red, or as it is.
func Red(shown bool, line string) string {
	if !shown {
		return line
	}
	return "\x1b[31m" + line + "\x1b[m"
}

// Is reports whether a file is a terminal that knows escape codes.
func Is(f *os.File) bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb" && isDisplay(f)
}
