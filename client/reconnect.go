package client

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// stableAfter is how long a connection must last to count as good: shorter
	// ones do not reset the backoff.
	stableAfter = time.Second
	// adoptLimit is how many attaches are under way at a time after a reconnect.
	adoptLimit = 32
)

// run keeps the client connected until it is closed.
func (c *Client) run(l *link) {
	pauses := c.newBackoff()
	for l != nil {
		c.use(l)
		broke := false
		select {
		case <-c.ctx.Done():
			return
		case <-l.goaway:
			c.log.Info("client.told_to_go", zap.String("host", l.host))
		case <-l.ended:
			broke = true
		}
		var pause time.Duration
		switch stable := time.Since(l.since) >= stableAfter; {
		case !stable:
			pause = pauses.NextBackOff()
		case broke:
			// All clients of the replica come at the same time: spread them a little.
			pauses.Reset()
			pause = rand.N(c.opts.MinBackoff)
		default:
			pauses.Reset()
		}
		l = c.reconnect((l.url+1)%len(c.urls), pause, pauses)
	}
}

func (c *Client) newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = c.opts.MinBackoff, c.opts.MaxBackoff, 2
	return b
}

// reconnect tries the URLs in turn from next on, and pauses after each round. It
// returns nil when the client is closed.
func (c *Client) reconnect(next int, pause time.Duration, pauses backoff.BackOff) *link {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for tried := 1; ; tried++ {
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			return nil
		}
		l, err := c.connect(c.ctx, next)
		if err == nil {
			return l
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

// use makes l the connection for new requests.
func (c *Client) use(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		// Close has not seen this link.
		_ = l.conn.CloseNow()
		return
	}
	c.links[l] = struct{}{}
	c.current = l
	close(c.ready)
	l.start()
	c.signalOrphans()
	c.log.Info("client.connected", zap.String("host", l.host),
		zap.String("replica", l.welcome.Replica), zap.String("session_id", l.welcome.SessionID))
}

// unuse sends no more requests over l; the answers under way still come. mu is
// held.
func (c *Client) unuse(l *link) {
	if c.current == l {
		c.current = nil
		c.ready = make(chan struct{})
	}
}

// drop takes note that l has ended.
func (c *Client) drop(l *link, reason error) {
	c.mu.Lock()
	l.dead = true
	c.unuse(l)
	l.failPending(errBroken, true)
	delete(c.links, l)
	c.signalOrphans()
	closed := c.closed
	c.mu.Unlock()
	close(l.ended)
	if !closed {
		c.log.Info("client.disconnected", zap.String("host", l.host), zap.Error(reason))
	}
}

// signalOrphans has the current link look for jobs to take over. mu is held.
func (c *Client) signalOrphans() {
	if c.current == nil {
		return
	}
	select {
	case c.current.orphans <- struct{}{}:
	default: // it will look anyway
	}
}

// adoptLoop attaches, over this link, to the jobs whose links are lost.
func (l *link) adoptLoop() {
	var attaches sync.WaitGroup
	defer attaches.Wait()
	places := make(chan struct{}, adoptLimit)
	for {
		select {
		case <-l.orphans:
		case <-l.goaway:
			return
		case <-l.ended:
			return
		}
		for _, h := range l.client.takeOrphans(l) {
			select {
			case places <- struct{}{}:
			case <-l.ended:
				return
			}
			attaches.Go(func() {
				l.adopt(h)
				<-places
			})
		}
	}
}

// takeOrphans moves all jobs of lost and leaving links to l, and closes leaving
// links that nothing is expected from any more.
func (c *Client) takeOrphans(l *link) []*Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	var orphans []*Handle
	for _, h := range c.jobs {
		if h.link != l && (h.link.dead || h.link.leaving) {
			h.link = l
			orphans = append(orphans, h)
		}
	}
	for old := range c.links {
		if old.leaving && len(old.pending) == 0 && !old.closing {
			old.closing = true
			c.loops.Go(func() { _ = old.conn.Close(websocket.StatusNormalClosure, "") })
		}
	}
	return orphans
}

// adopt attaches to one job. When the link is lost meanwhile the job is an
// orphan again, and the next link's.
func (l *link) adopt(h *Handle) {
	c := l.client
	pauses := c.newBackoff()
	for {
		k := newAttach(h)
		id, ok := l.begin(k)
		if !ok {
			return
		}
		select {
		case l.out <- wire.AppendAttach(nil, id, h.id):
		case <-l.ended:
			return
		}
		select {
		case <-k.done:
		case <-l.ended:
			return
		}
		switch {
		case k.err == nil || k.broken:
			return
		case !freeslot.CodeOf(k.err).Temporary():
			c.mu.Lock()
			h.finish(freeslot.JobStatus{}, k.err)
			c.mu.Unlock()
			return
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-h.done:
			return
		case <-l.goaway:
			return
		case <-l.ended:
			return
		}
	}
}

// begin makes k a call of this very link; ok is false when it takes none.
func (l *link) begin(k *call) (id string, ok bool) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.dead || l.leaving || c.closed {
		return "", false
	}
	id = c.newID()
	l.pending[id] = k
	return id, true
}
