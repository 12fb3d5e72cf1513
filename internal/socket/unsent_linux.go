package socket

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundUnsent keeps the kernel from accepting more than most bytes that a slow line carries only
// later. The kernel can accept megabytes, and the next message would wait behind them.
func boundUnsent(conn net.Conn, most int) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		// If this fails, the connection works, and is late on a slow line.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, most)
		})
	}
}
