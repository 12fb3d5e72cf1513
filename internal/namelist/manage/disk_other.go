//go:build !linux

package manage

// diskFree is not known: a full disk is noticed when it is written to.
func diskFree(string) (bytes int64, known bool) { return 0, false }
