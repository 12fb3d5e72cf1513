//go:build !unix

package listener

// MaxFiles returns how many files the process may have open, or 0 if that is unknown.
func MaxFiles() int { return 0 }
