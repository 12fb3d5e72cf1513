//go:build !linux

package terminal

import "os"

// isDisplay reports whether a file looks like a terminal.
func isDisplay(f *os.File) bool {
	info, err := f.Stat()
	null, failed := os.Stat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && (failed != nil || !os.SameFile(info, null))
}
