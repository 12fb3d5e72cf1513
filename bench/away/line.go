package away

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	// lineChunk is small, so that connections share a line as packets would.
	lineChunk = 4 << 10
	// lineSocket bounds what the system keeps of a connection before the line. It would take whole
	// megabytes from a sender, who would take them for sent.
	lineSocket = 64 << 10
)

// OpenLine is Open for a line of so many bits a second in each direction, which all connections
// share. What waits for the line stands in one queue, as in a router, of at most so much time.
func OpenLine(to string, bitsPerSecond float64, queue time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	newLine := func() *line { return &line{bitsPerSecond: bitsPerSecond, queue: queue} }
	return serve(smallSockets{l}, &Proxy{to: to, up: newLine(), down: newLine()}), nil
}

// line is one direction.
type line struct {
	bitsPerSecond float64
	queue         time.Duration

	mu   sync.Mutex // guards free; held by the chunk that is first before a full queue
	free time.Time  // when the line has sent all that is in the queue
}

// due waits until the queue has room, and returns when the line has sent so many bytes more.
func (l *line) due(ctx context.Context, bytes int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = measure.SleepUntil(ctx, l.free.Add(-l.queue)) // late finds that ctx has ended
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(8*bytes) / l.bitsPerSecond * float64(time.Second)))
	return l.free
}

type smallSockets struct{ net.Listener }

func (l smallSockets) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		err = tcp.SetReadBuffer(lineSocket)
	}
	return conn, err
}
