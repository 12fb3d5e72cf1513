//go:build unix

package output

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a file the owner and group of another one, as far as the process may.
func keepOwner(file *os.File, of fs.FileInfo) {
	if s, ok := of.Sys().(*syscall.Stat_t); ok {
		if file.Chown(int(s.Uid), int(s.Gid)) != nil {
			_ = file.Chown(-1, int(s.Gid))
		}
	}
}
