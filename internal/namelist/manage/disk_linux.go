package manage

import "syscall"

// diskFree returns the free space on the disk of a folder, in bytes.
func diskFree(dir string) (bytes int64, known bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
