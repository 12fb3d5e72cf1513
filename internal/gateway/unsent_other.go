//go:build !linux

package gateway

import "net"

// boundUnsent does nothing: here the kernel may take in what a slow line carries only later.
func boundUnsent(net.Conn) {}
