//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// raiseFiles lets this process and those that it starts have so many open files, as far as it may.
func raiseFiles(count uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if uint64(limit.Cur) >= count {
		return nil
	}
	limit.Cur, limit.Max = count, max(limit.Max, count)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("%d open files are not to be had (ulimit -n): %w", count, err)
	}
	return nil
}
