package client

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// stableAfter is how long a connection must last to count as good. A shorter one does not reset
	// the backoff.
	stableAfter = time.Second
	// adoptLimit is the number of attaches that are under way at a time after a reconnect.
	adoptLimit = 32
)

// run keeps the client connected until it is closed.
func (c *Client) run(conn *connection) {
	pauses := c.newBackoff()
	for conn != nil {
		c.use(conn)
		broke := false
		select {
		case <-c.ctx.Done():
			return
		case <-conn.goaway:
			c.log.Info("client.told_to_go", zap.String("host", conn.host))
		case <-conn.ended:
			broke = true
		}
		var pause time.Duration
		switch stable := time.Since(conn.since) >= stableAfter; {
		case !stable:
			pause = pauses.NextBackOff()
		case broke:
			// All clients of the replica come at the same time, so spread them a little.
			pauses.Reset()
			pause = rand.N(c.opts.MinBackoff)
		default:
			pauses.Reset()
		}
		conn = c.reconnect((conn.url+1)%len(c.urls), pause, pauses)
	}
}

func (c *Client) newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = c.opts.MinBackoff, c.opts.MaxBackoff, 2
	return b
}

// reconnect tries the URLs in turn, beginning with next, and pauses after each round. It returns
// nil if the client is closed.
func (c *Client) reconnect(next int, pause time.Duration, pauses backoff.BackOff) *connection {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for tried := 1; ; tried++ {
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return nil
		}
		conn, err := c.connect(c.ctx, next)
		if err == nil {
			return conn
		}
		if c.ctx.Err() != nil {
			return nil
		}
		c.log.Warn("client.connect_failed", zap.String("host", c.urls[next].Host), zap.Error(err))
		c.mu.Lock()
		c.failure = err
		c.mu.Unlock()
		next = (next + 1) % len(c.urls)
		pause = 0
		if tried%len(c.urls) == 0 {
			pause = pauses.NextBackOff()
		}
		timer.Reset(pause)
	}
}

// use makes conn the connection for new requests.
func (c *Client) use(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		// Close has not seen this connection.
		_ = conn.socket.CloseNow()
		return
	}
	c.connections[conn] = struct{}{}
	c.current = conn
	close(c.ready)
	conn.start()
	c.signalOrphans()
	c.log.Info("client.connected", zap.String("host", conn.host),
		zap.String("replica", conn.welcome.Replica), zap.String("session_id", conn.welcome.SessionID))
}

// unuse stops sending requests over conn. Answers under way still come. The caller holds mu.
func (c *Client) unuse(conn *connection) {
	if c.current == conn {
		c.current = nil
		c.ready = make(chan struct{})
	}
}

// drop records that conn has ended.
func (c *Client) drop(conn *connection, reason error) {
	c.mu.Lock()
	conn.dead = true
	c.unuse(conn)
	conn.failPending(errBroken, true)
	delete(c.connections, conn)
	c.signalOrphans()
	closed := c.closed
	c.mu.Unlock()
	close(conn.ended)
	if !closed {
		c.log.Info("client.disconnected", zap.String("host", conn.host), zap.Error(reason))
	}
}

// signalOrphans makes the current connection look for jobs to take over. The caller holds mu.
func (c *Client) signalOrphans() {
	if c.current == nil {
		return
	}
	select {
	case c.current.orphans <- struct{}{}:
	default: // it will look anyway
	}
}

// adoptLoop attaches, over this connection, to the jobs whose connections are lost.
func (conn *connection) adoptLoop() {
	var attaches sync.WaitGroup
	defer attaches.Wait()
	places := make(chan struct{}, adoptLimit)
	for {
		select {
		case <-conn.orphans:
		case <-conn.goaway:
			return
		case <-conn.ended:
			return
		}
		for _, h := range conn.client.takeOrphans(conn) {
			select {
			case places <- struct{}{}:
			case <-conn.ended:
				return
			}
			attaches.Go(func() {
				conn.adopt(h)
				<-places
			})
		}
	}
}

// takeOrphans moves all jobs of lost and leaving connections to conn, and closes leaving
// connections that have brought all their answers.
func (c *Client) takeOrphans(conn *connection) []*Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	var orphans []*Handle
	for _, h := range c.jobs {
		if h.taken || h.conn != conn && (h.conn.dead || h.conn.leaving) {
			h.conn, h.taken = conn, false
			orphans = append(orphans, h)
		}
	}
	for old := range c.connections {
		if old.leaving && len(old.pending) == 0 && !old.closing {
			old.closing = true
			c.loops.Go(old.sayGoodbye)
		}
	}
	return orphans
}

// adopt attaches to one job. If the connection is lost meanwhile, the job is an orphan again, and
// goes to the next connection.
func (conn *connection) adopt(h *Handle) {
	pauses := conn.client.newBackoff()
	for {
		k := newAttach(h.id, h)
		id, ok := conn.beginAttach(k)
		if !ok {
			return
		}
		select {
		case conn.out <- wire.AppendAttach(nil, id, h.id):
		case <-conn.ended:
			return
		}
		select {
		case <-k.done:
		case <-conn.ended:
			return
		}
		switch {
		case k.err == nil || k.broken:
			return
		case !freeslot.CodeOf(k.err).Temporary():
			conn.client.mu.Lock()
			h.finish(freeslot.JobStatus{}, k.err)
			conn.client.mu.Unlock()
			return
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-h.job.Done():
			return
		case <-conn.goaway:
			return
		case <-conn.ended:
			return
		}
	}
}

// beginAttach makes k a call of this very connection; ok is false if it takes no more calls.
func (conn *connection) beginAttach(k *call) (id string, ok bool) {
	c := conn.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.dead || conn.leaving || c.closed {
		return "", false
	}
	return conn.begin(k), true
}
