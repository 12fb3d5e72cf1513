//go:build !linux

package manage

// diskFree reports that the free space is not known: a full disk is noticed on writing.
func diskFree(string) (bytes int64, known bool) { return 0, false }
