//go:build !unix

package main

import "errors"

func raiseFiles(uint64) (uint64, error) {
	return 0, errors.New("the limit of open files: only on Unix")
}
