package gateway

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is what the kernel takes from a session before it can send it.
const unsentBytes = 16 << 10

// boundUnsent keeps the kernel from taking in what a slow line carries only later: it can take
// megabytes, behind which the answer to a heartbeat would wait.
func boundUnsent(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// Without it the session works, and is late on a slow line.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		})
	}
}
