//go:build !linux

package measure

import "os/exec"

// dieWithParent does nothing: these kernels have no parent-death signal.
func dieWithParent(*exec.Cmd) {}
