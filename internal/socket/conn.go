package socket

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// Config describes the connections of one endpoint. All fields are required.
type Config struct {
	// Protocol is the subprotocol.
	Protocol string
	// MaxFrameBytes is the size of the largest frame that a peer may send.
	MaxFrameBytes int
	// QueueMessages and QueueBytes bound what waits for a peer to read it.
	QueueMessages, QueueBytes int
	// UnsentBytes is how much the kernel accepts before it can send it.
	UnsentBytes int
	// PingTimeout is how long a peer may take to answer a ping, WriteTimeout to take a frame.
	// CloseTimeout bounds the end of a connection, including the delivery of the queue.
	PingTimeout, WriteTimeout, CloseTimeout time.Duration
	// Slow is the order for peers that do not read fast enough. Closed and Lost are the labels of
	// connections that the peer has closed, or that have broken.
	Slow         Order
	Closed, Lost string
	// The counters are of data frames, and of their bytes without the WebSocket's own headers.
	FramesIn, FramesOut, BytesIn, BytesOut prometheus.Counter
}

// Order tells how a connection ends.
type Order struct {
	// Code goes into the close frame. 0 means no close frame: the connection is gone already, or
	// not worth one.
	Code websocket.StatusCode
	// Text is the reason in the close frame. Its first 123 bytes are sent.
	Text string
	// Label names the reason in the log and in metrics.
	Label string
	// Flush is true if the queue is delivered first. Otherwise it is dropped.
	Flush bool
}

// maxReason is the longest reason in a close frame, in bytes.
const maxReason = 123

// Stopping returns the order for the connections of a replica that stops.
func Stopping(label string) Order {
	return Order{Code: websocket.StatusGoingAway, Text: "the replica is stopping", Label: label, Flush: true}
}

// Conn is a connection to one peer. Read and Write are for one goroutine each; everything else is
// safe for concurrent use.
type Conn struct {
	cfg *Config
	ws  *websocket.Conn
	net net.Conn // the connection under ws, to cut it
	out outbox
	// received counts bytes. paused and writing are reasons that none arrive.
	received        atomic.Int64
	paused, writing atomic.Bool
	// limit cuts a connection that takes too long to end. It exists from the start, stopped, so
	// that End needs no lock.
	limit *time.Timer
}

func newConn(cfg *Config, ws *websocket.Conn, nc net.Conn) *Conn {
	c := &Conn{cfg: cfg, ws: ws, net: nc}
	c.out.init(cfg.QueueMessages, cfg.QueueBytes)
	c.limit = StoppedTimer(c.Cut)
	return c
}

// StoppedTimer returns a timer that calls f once it was reset.
func StoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}

// End gives the order to end the connection, and reports whether it is the first one. It never
// blocks.
func (c *Conn) End(by Order) bool {
	first := c.out.end(by)
	if first {
		c.limit.Reset(c.cfg.CloseTimeout)
	}
	return first
}

// Ended returns the order that was given; nil if there is none yet.
func (c *Conn) Ended() *Order { return c.out.ended() }

// Cut ends the connection by force. Everything else follows from that.
func (c *Conn) Cut() { _ = c.net.Close() }

// Close frees what is left once Read and Write have returned.
func (c *Conn) Close() {
	_ = c.ws.CloseNow()
	c.limit.Stop()
}

// Put queues the message that encode appends. It never blocks. It queues nothing and returns false
// if too much would then wait: the connection must end as Config.Slow says. A single message is
// never too large, because otherwise no peer could ever get it. A connection that is ending drops
// messages, and Put returns true.
func (c *Conn) Put(encode func(dst []byte) []byte) bool { return c.out.put(encode, c.cfg.QueueBytes) }

// PutBelow is like Put, with a bound of its own for the bytes that wait.
func (c *Conn) PutBelow(text []byte, most int) bool {
	return c.out.put(func(dst []byte) []byte { return append(dst, text...) }, most)
}

// Together has the messages that put queues leave in one frame, as far as one may hold. Otherwise
// the writer could take the first of them alone. put must not block.
func (c *Conn) Together(put func()) {
	c.out.hold()
	defer c.out.letGo()
	put()
}

// PutLatest queues a message in place of an earlier one with the same key. It is sent once the
// queue is empty, and does not count towards the queue's bounds. A message that begins with a
// control character, which no JSON does, is sent as a binary one, unless messages are joined.
func (c *Conn) PutLatest(key string, message []byte) Outcome { return c.out.putLatest(key, message) }

// DropLatest drops a message of PutLatest that was not sent yet.
func (c *Conn) DropLatest(key string) { c.out.dropLatest(key) }

// Waits reports whether a message of PutLatest was not sent yet.
func (c *Conn) Waits(key string) bool { return c.out.waits(key) }

// WaitRoom waits until the queue is at most half full and has room for size more bytes, or is
// empty. It returns false if the connection ends.
func (c *Conn) WaitRoom(size int) bool { return c.out.waitRoom(size, func() {}) }

// WaitRoomToRead is WaitRoom for the reader: while it waits, nothing is expected of the peer.
func (c *Conn) WaitRoomToRead() bool {
	open := c.out.waitRoom(0, c.Pause)
	c.Resume()
	return open
}

// Pause records that the reader waits for something else than the peer, and Resume that it reads.
func (c *Conn) Pause() { c.paused.Store(true) }

// Resume is documented with Pause.
func (c *Conn) Resume() { c.paused.Store(false) }

// Alive pings the peer, which Read must answer for. It returns the round trip, 0 if no answer came,
// and reports whether the peer lives. A peer that does not answer in time may still be alive. It
// may be busy sending; then bytes arrive. This process may hold it back. Or it reads slowly; then
// the writer decides. A ping that fails for another reason met a closed connection.
func (c *Conn) Alive(ctx context.Context) (roundTrip time.Duration, alive bool) {
	before, begin := c.received.Load(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.PingTimeout)
	defer cancel()
	err := c.ws.Ping(ctx)
	if err == nil {
		roundTrip = time.Since(begin)
	}
	return roundTrip, err == nil || ctx.Err() == nil ||
		c.received.Load() != before || c.paused.Load() || c.writing.Load()
}

// hangUp closes the connection, with a close frame if the order has a code. The limit timer bounds
// both sides of that handshake.
func (c *Conn) hangUp(by *Order) {
	if by.Code == 0 {
		_ = c.ws.CloseNow()
		return
	}
	_ = c.ws.Close(by.Code, strings.ToValidUTF8(by.Text[:min(len(by.Text), maxReason)], ""))
}
