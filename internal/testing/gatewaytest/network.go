// Package gatewaytest stands for gateways, and for the network between them and agents.
package gatewaytest

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Network holds the listeners of a network in memory, by host. It works in virtual time.
type Network struct {
	mu        sync.Mutex // guards the rest
	listeners map[string]*Listener
	silent    map[string]bool // hosts that answer no dial
	open      []*Conn         // those that were dialled, some of them closed
	dialled   int             // how often
}

// Dialled returns how often agents have dialled.
func (p *Network) Dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialled
}

// Conn is the agent's end of a connection.
type Conn struct {
	net.Conn
	host   string
	Delay  atomic.Int64  // how late reads are, in nanoseconds
	frozen chan struct{} // closed: nothing is read any more
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex // guards the rest
	mute bool       // what is written arrives later, if ever
	late []byte     // that was written meanwhile
}

func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if delay := c.Delay.Load(); delay > 0 {
		select {
		case <-time.After(time.Duration(delay)):
		case <-c.closed: // Close waits for the read
		}
	}
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.mute {
		defer c.mu.Unlock()
		c.late = append(c.late, p...)
		return len(p), nil
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Close closes the connection. While the host is cut off, the other side does not learn it.
func (c *Conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute { // the other side does not learn it
		return c.SetReadDeadline(time.Now())
	}
	return c.Conn.Close()
}

// Fail cuts or freezes all connections that are open.
func (p *Network) Fail(freeze bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		if freeze {
			close(c.frozen)
		} else {
			_ = c.Close()
		}
	}
	p.open = nil
}

// At returns the connections to the host.
func (p *Network) At(host string) (at []*Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		if c.host == host {
			at = append(at, c)
		}
	}
	return at
}

// Kill ends the host: its connections are reset, and others are refused.
func (p *Network) Kill(host string) {
	p.mu.Lock()
	delete(p.listeners, host)
	p.mu.Unlock()
	for _, c := range p.At(host) {
		_ = c.Close()
	}
}

// Cut lets nothing through between the agent and the host, in both directions.
func (p *Network) Cut(host string) {
	p.mu.Lock()
	p.silent[host] = true
	p.mu.Unlock()
	for _, c := range p.At(host) {
		c.mu.Lock()
		c.mute = true
		c.mu.Unlock()
		close(c.frozen)
	}
}

// Arrive brings the host what was sent to it since it was cut, also by connections that were
// closed.
func (p *Network) Arrive(host string) {
	for _, c := range p.At(host) {
		c.mu.Lock()
		late := c.late
		c.mute, c.late = false, nil
		c.mu.Unlock()
		_, _ = c.Conn.Write(late)
		select {
		case <-c.closed:
			_ = c.Conn.Close()
		default:
		}
	}
}

// Listener accepts the connections to one host.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen makes a host that agents can dial.
func (p *Network) Listen(host string) *Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		p.listeners, p.silent = map[string]*Listener{}, map[string]bool{}
	}
	l := &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[host] = l
	return l
}

// Dial connects to a host, and waits for ctx if the host is cut off.
func (p *Network) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	l, silent := p.listeners[host], p.silent[host]
	p.dialled++
	p.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		c := &Conn{Conn: near, host: host, frozen: make(chan struct{}), closed: make(chan struct{})}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open = append(p.open, c)
		return c, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It does not close connections.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns an address for logs.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
