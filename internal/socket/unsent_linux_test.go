package socket

import (
	"crypto/tls"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBoundUnsent: the kernel takes little more than it can send, also below TLS.
func TestBoundUnsent(t *testing.T) {
	t.Parallel()
	const most = 16 << 10
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if secure {
				boundUnsent(tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12}), most)
			} else {
				boundUnsent(conn, most)
			}
			raw, err := conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			if failed := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) }); failed != nil || err != nil {
				t.Fatal(failed, err)
			}
			if got != most {
				t.Errorf("up to %d bytes are taken, expected %d", got, most)
			}
		})
	}
}
