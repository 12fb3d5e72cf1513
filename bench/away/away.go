// Package away puts a distance between processes and a server: a TCP proxy through which every
// request arrives later by a fixed time, and answers come back at once, so that a round trip takes
// that much longer. Or it puts a slow line between them.
//
// It is no toxiproxy, whose latency waits by Go timers: these round up to a millisecond in a
// process that has nothing else to do, which is as much as what is to be added here. What is sent
// meanwhile is not held up behind what waits: chunks wait side by side, as on a long wire.
package away

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	chunkSize = 64 << 10
	// onTheWire bounds the chunks of a connection that are under way; a sender that is faster
	// waits.
	onTheWire = 1024
)

// Proxy is one way to a server. Its methods are safe for concurrent use.
type Proxy struct {
	listener net.Listener
	to       string
	delay    time.Duration
	up, down *line // nil without a line
	silent   atomic.Bool
	cancel   context.CancelFunc
	loops    sync.WaitGroup
	refused  error // set before the end of loops
}

// Open listens on a free port of the loopback interface. The caller closes the proxy.
func Open(to string, delay time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serve(l, &Proxy{to: to, delay: delay}), nil
}

func serve(l net.Listener, p *Proxy) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p.listener, p.cancel = l, cancel
	p.loops.Go(func() { p.refused = p.accept(ctx) })
	return p
}

// Addr is where to connect instead of the server.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Silence has the proxy swallow all bytes from now on, in both directions, and close nothing:
// neither end learns that the other one is gone.
func (p *Proxy) Silence() { p.silent.Store(true) }

// audible is the way to one end, until the proxy is silent.
type audible struct {
	io.Writer
	silent *atomic.Bool
}

func (a audible) Write(data []byte) (int, error) {
	if a.silent.Load() {
		return len(data), nil
	}
	return a.Writer.Write(data)
}

// Close cuts all connections and waits for the proxy's goroutines. The error is also why the proxy
// took no more connections before, such as a limit of open files: it has three for each.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.loops.Wait()
	if p.refused != nil {
		return p.refused // the listener was closed then
	}
	return err
}

func (p *Proxy) accept(ctx context.Context) error {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			_ = p.listener.Close() // or else who connects would wait for an answer
			return fmt.Errorf("proxy to %s: %w", p.to, err)
		}
		p.loops.Go(func() { _ = p.carry(ctx, conn) }) // either end sees the cut
	}
}

// carry serves one connection until either end closes it.
func (p *Proxy) carry(ctx context.Context, from net.Conn) error {
	defer from.Close()
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return err
	}
	defer to.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ways sync.WaitGroup
	defer ways.Wait()
	defer context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })()
	ways.Go(func() {
		defer cancel()
		if p.down == nil {
			_, _ = io.Copy(audible{from, &p.silent}, to)
			return
		}
		_ = late(ctx, to, audible{from, &p.silent}, lineChunk, p.down.due)
	})
	if p.up == nil {
		err = late(ctx, from, audible{to, &p.silent}, chunkSize, p.due)
	} else {
		err = late(ctx, from, audible{to, &p.silent}, lineChunk, p.up.due)
	}
	cancel()
	_, _ = from.Close(), to.Close()
	return err
}

type chunk struct {
	data []byte
	due  time.Time
}

// due is when a chunk that comes now has arrived.
func (p *Proxy) due(context.Context, int) time.Time { return time.Now().Add(p.delay) }

// late passes on what comes, in chunks of at most so many bytes, each when it is due.
func late(ctx context.Context, from io.Reader, to io.Writer, bytes int, due func(context.Context, int) time.Time) error {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	wire := make(chan chunk, onTheWire)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(wire)
		for {
			data := make([]byte, bytes)
			n, err := from.Read(data)
			if n > 0 {
				select {
				case wire <- chunk{data[:n], due(ctx, n)}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range wire {
		err := pace.Wait(ctx, c.due)
		if err == nil {
			_, err = to.Write(c.data)
		}
		if err != nil {
			for range wire { // its sender must not wait for a place
			}
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}
