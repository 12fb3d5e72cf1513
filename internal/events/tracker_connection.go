package events

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// connection tracks one server.
type connection struct {
	tracker *Tracker
	server  string
	// watches holds the watches of the server's cells. The tracker's loop replaces them.
	watches   atomic.Pointer[[]*Watch]
	connected atomic.Bool
	// unsupported is true if the server's last answer said that it cannot track.
	unsupported atomic.Bool
	ctx         context.Context
	cancel      context.CancelFunc
}

// open starts a connection; it ends by its cancel or with the tracker.
func (t *Tracker) open(server string) *connection {
	c := &connection{tracker: t, server: server}
	c.ctx, c.cancel = context.WithCancel(t.ctx)
	c.watches.Store(new([]*Watch))
	t.connections[server] = c
	t.work.Go(c.run)
	return c
}

func (c *connection) run() {
	defer c.cancel()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	logged := false // true if it has logged the present outage
	for {
		tracked, err := c.session()
		if c.ctx.Err() != nil {
			return
		}
		if unsupportedError(err) {
			if !c.unsupported.Swap(true) {
				c.tracker.log.Warn("events.tracking_unsupported", zap.String("server", c.server), zap.Error(err))
			}
			// The server can be upgraded, or another one can take its address.
			logged = false
			interval := c.tracker.cfg.UnsupportedInterval
			c.pause(interval/2 + rand.N(interval))
			continue
		}
		c.unsupported.Store(false)
		if tracked {
			wait.Reset()
			logged = false
		}
		if !logged { // once for each outage: all attempts in it fail for the same reason
			logged = true
			c.tracker.log.Warn("events.tracking_failed", zap.String("server", c.server), zap.Error(err))
		}
		c.pause(wait.NextBackOff())
	}
}

func (c *connection) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// session opens a client and tracks. The client reconnects by itself while it receives. session
// ends with c, and on errors that do not concern the network. tracked is true if the server ever
// tracked.
func (c *connection) session() (tracked bool, err error) {
	client, err := c.tracker.cfg.Open(c.server, c.invalidated)
	if err != nil {
		return false, err
	}
	defer client.Close()
	defer c.disconnect()
	var confirmed atomic.Bool
	ctx := rueidis.WithOnSubscriptionHook(c.ctx, func(sub rueidis.PubSubSubscription) {
		// The handshake of this connection has turned tracking on before.
		if sub.Kind == "subscribe" {
			confirmed.Store(true)
			c.connect()
		}
	})
	ctx = rueidis.WithOnReceiveReturnHook(ctx, func(err error, _ rueidis.CommandClient) error {
		c.disconnect()
		return err
	})
	// rueidis renews a broken connection only if it receives, so it subscribes to a channel without
	// messages.
	subscribe := client.B().Subscribe().Channel(c.tracker.cfg.Prefix + "keepalive").Build()
	if err = client.Receive(ctx, subscribe, func(rueidis.PubSubMessage) {}); err == nil {
		err = errUnsubscribed
	}
	return confirmed.Load(), err
}

// connect runs on the connection's reader, after each connection. It touches the watches first, so
// that a reader of Connected already has the token.
func (c *connection) connect() {
	c.touchAll()
	c.unsupported.Store(false)
	if !c.connected.Swap(true) {
		c.tracker.metrics.connected.Inc()
	}
}

// disconnect runs after each connection. It may be called twice.
func (c *connection) disconnect() {
	if c.connected.Swap(false) {
		c.tracker.metrics.connected.Dec()
		signal(c.tracker.lost)
	}
}

// invalidated runs on the connection's reader. keys is nil after a flush, and when the connection
// breaks.
func (c *connection) invalidated(keys []rueidis.RedisMessage) {
	switch {
	case c.ctx.Err() != nil: // closed by this process
	case keys == nil:
		c.touchAll()
	default:
		c.tracker.invalidated(keys)
	}
}

// touchAll touches the watches of the server's cells, and no others.
func (c *connection) touchAll() {
	for _, w := range *c.watches.Load() {
		w.touchAll()
		c.tracker.metrics.resets.Inc()
	}
}
