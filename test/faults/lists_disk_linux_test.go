package faults

import "golang.org/x/sys/unix"

// fullDisk has a process write no file beyond some bytes, as on a full disk: a limit of the process
// needs no rights. bytes of 0 takes it back.
func fullDisk(pid int, bytes uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if bytes > 0 {
		limit.Cur = bytes
	}
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
}
