//go:build !unix

package measure

import "errors"

// RaiseFiles is only on Unix.
func RaiseFiles(uint64) (uint64, error) {
	return 0, errors.New("the limit of open files: only on Unix")
}
