//go:build !linux

package nodeagent

import (
	"errors"
	"syscall"
)

// account is a user that commands run as, which only Linux has.
type account struct {
	name, home string
	root       bool
}

func lookUp(string) (*account, error) {
	return nil, errors.New("is set, but only on Linux a command can run as another user")
}

func (*account) check(string, string) error { return nil }

func (*account) switchTo(*syscall.SysProcAttr) error { return nil }
