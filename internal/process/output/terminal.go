package output

import "os"

// IsTerminal reports whether a file is a terminal that knows escape codes.
func IsTerminal(f *os.File) bool {
	term := os.Getenv("TERM")
	return term != "" && term != "dumb" && isDisplay(f)
}
