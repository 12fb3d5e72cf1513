package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// isDisplay reports whether a file is a terminal. Other devices, such as /dev/null, are not.
func isDisplay(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
