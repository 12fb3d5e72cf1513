package gateway

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel accepts from a session before it can send it.
const unsentBytes = 16 << 10

// boundUnsent keeps the kernel from accepting data that a slow line carries only later. The kernel
// can accept megabytes, and the answer to a heartbeat would wait behind them.
func boundUnsent(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// If this fails, the session works, and is late on a slow line.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		})
	}
}
