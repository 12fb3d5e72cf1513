package socket

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// Offers reports whether a client would understand the subprotocol, since it offers it.
func Offers(r *http.Request, protocol string) bool {
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		if strings.EqualFold(strings.TrimSpace(name), protocol) {
			return true
		}
	}
	return false
}

// IsUpgrade reports whether a request asks for a WebSocket.
func IsUpgrade(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// Refuse answers a request that gets no WebSocket, with a status and a JSON body. An error about
// the field Upgrade tells the client which upgrade is expected.
func Refuse(w http.ResponseWriter, status int, err *freeslot.Error) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	switch {
	case err.Code == freeslot.CodeUnauthenticated:
		header.Set("WWW-Authenticate", `Bearer realm="freeslot"`)
	case err.Field == "Upgrade":
		status = http.StatusUpgradeRequired
		header.Set("Upgrade", "websocket")
		header.Set("Connection", "Upgrade")
	}
	if err.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int((err.RetryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(wire.AppendErrorBody(nil, err), '\n')) // the client may be gone
}

// Accept upgrades a request whose origin was checked. After an error the request has its answer.
func Accept(w http.ResponseWriter, r *http.Request, cfg *Config) (*Conn, error) {
	hijacked := &hijackWriter{ResponseWriter: w}
	ws, err := websocket.Accept(hijacked, r, &websocket.AcceptOptions{
		Subprotocols: []string{cfg.Protocol},
		// The caller has checked the origin, and answered in JSON.
		InsecureSkipVerify: true,
	})
	if err != nil {
		return nil, err
	}
	boundUnsent(hijacked.conn, cfg.UnsentBytes)
	ws.SetReadLimit(-1) // Read has the limit, and tells the peer
	return newConn(cfg, ws, hijacked.conn), nil
}

// Sizes of a connection's buffers. net/http's have 4 KiB each, and most frames are small.
const (
	readBytes  = 1 << 10
	writeBytes = 2 << 10
)

// hijackWriter keeps the connection that the upgrade takes over. The WebSocket library can end it
// only after a close handshake of up to ten seconds.
type hijackWriter struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	// If the peer has sent something before it has an answer, the connection keeps the large
	// reader.
	if err == nil && rw.Reader.Buffered() == 0 {
		rw = bufio.NewReadWriter(bufio.NewReaderSize(conn, readBytes), bufio.NewWriterSize(conn, writeBytes))
	}
	return conn, rw, err
}
