//go:build unix

package measure

import "syscall"

// RaiseFiles lets this process and those that it starts have so many open files, or as many as they
// may, and returns how many that are.
func RaiseFiles(count uint64) (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	if limit.Cur >= count {
		return limit.Cur, nil
	}
	wanted := syscall.Rlimit{Cur: count, Max: max(limit.Max, count)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wanted); err == nil {
		return count, nil
	}
	limit.Cur = limit.Max
	return limit.Max, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
