//go:build !unix

package main

import "errors"

func raiseFiles(uint64) error { return errors.New("the limit of open files: only on Unix") }
