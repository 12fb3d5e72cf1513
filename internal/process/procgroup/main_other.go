//go:build !linux

package procgroup

// Main runs a program and returns its exit code.
func Main(run func() int) int { return run() }
