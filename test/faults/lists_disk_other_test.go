//go:build !linux

package faults

// fullDisk cannot limit the files of another process here.
func fullDisk(int, uint64) error { return nil }
