//go:build !linux

package socket

import "net"

// boundUnsent does nothing: on this system the kernel may accept data that a slow line carries only
// later.
func boundUnsent(net.Conn, int) {}
