//go:build !unix

package main

import "errors"

func raise(int) error { return errors.ErrUnsupported }
