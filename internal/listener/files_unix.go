//go:build unix

package listener

import (
	"math"
	"syscall"
)

// MaxFiles returns how many files the process may have open, or 0 if that is unknown.
func MaxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
