package events

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// link is the tracking connection to one server.
type link struct {
	tracker *Tracker
	server  string
	// watches are those of the server's cells; replaced by the tracker's loop.
	watches   atomic.Pointer[[]*Watch]
	connected atomic.Bool
	// unsupported is whether the server refused to track when it was asked last.
	unsupported atomic.Bool
	ctx         context.Context
	cancel      context.CancelFunc
}

// open starts a link; it ends by its cancel or with the tracker.
func (t *Tracker) open(server string) *link {
	l := &link{tracker: t, server: server}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	l.watches.Store(new([]*Watch))
	t.links[server] = l
	t.work.Go(l.run)
	return l
}

func (l *link) run() {
	defer l.cancel()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	slow := backoff.NewExponentialBackOff() // for its jitter alone
	slow.InitialInterval, slow.MaxInterval = l.tracker.cfg.UnsupportedInterval, l.tracker.cfg.UnsupportedInterval
	said := false
	for l.ctx.Err() == nil {
		stood, err := l.session()
		if l.ctx.Err() != nil {
			return
		}
		if unsupportedError(err) {
			l.refused(err)
			// It may be upgraded, or another may take its address.
			said = false
			l.pause(slow.NextBackOff())
			continue
		}
		l.unsupported.Store(false)
		if stood {
			wait.Reset()
			said = false
		}
		// Once for each outage: the reason of an attempt is that of all.
		if !said {
			said = true
			l.tracker.log.Warn("events.tracking_failed", zap.String("server", l.server), zap.Error(err))
		}
		l.pause(wait.NextBackOff())
	}
}

// refused notes that the server cannot track, and says so once.
func (l *link) refused(err error) {
	if !l.unsupported.Swap(true) {
		l.tracker.log.Warn("events.tracking_unsupported", zap.String("server", l.server), zap.Error(err))
	}
}

func (l *link) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// session opens a client and tracks. The client reconnects by itself, for as long
// as it receives; session ends with the link and for errors that are not about the
// connection. stood tells whether it ever tracked.
func (l *link) session() (stood bool, err error) {
	client, err := l.tracker.cfg.Open(l.server, l.invalidated)
	if err != nil {
		return false, err
	}
	defer client.Close()
	defer l.disconnect()
	var confirmed atomic.Bool
	ctx := rueidis.WithOnSubscriptionHook(l.ctx, func(sub rueidis.PubSubSubscription) {
		// Tracking was turned on before, in the handshake of this connection.
		if sub.Kind == "subscribe" {
			confirmed.Store(true)
			l.connect()
		}
	})
	ctx = rueidis.WithOnReceiveReturnHook(ctx, func(err error, _ rueidis.CommandClient) error {
		l.disconnect()
		return err
	})
	// An idle connection that breaks is not renewed; one that receives is. Nobody
	// publishes to this channel.
	subscribe := client.B().Subscribe().Channel(l.tracker.cfg.Prefix + "keepalive").Build()
	if err = client.Receive(ctx, subscribe, func(rueidis.PubSubMessage) {}); err == nil {
		err = errUnsubscribed
	}
	return confirmed.Load(), err
}

// connect is called on the connection's reader for each connection that stands.
// The cells are told first: whoever sees the connection has been told.
func (l *link) connect() {
	l.touchAll()
	l.unsupported.Store(false)
	if !l.connected.Swap(true) {
		l.tracker.metrics.connected.Inc()
	}
}

// disconnect is called after each connection, and harmless twice.
func (l *link) disconnect() {
	if !l.connected.Swap(false) {
		return
	}
	l.tracker.metrics.connected.Dec()
	select {
	case l.tracker.lost <- struct{}{}:
	default:
	}
}

// invalidated is called on the connection's reader; keys is nil after a flush and
// when the connection breaks.
func (l *link) invalidated(keys []rueidis.RedisMessage) {
	switch {
	case l.ctx.Err() != nil: // closed here, which is no news
	case keys == nil:
		l.touchAll()
	default:
		l.tracker.invalidated(keys)
	}
}

// touchAll tells the server's cells, and no others.
func (l *link) touchAll() {
	for _, w := range *l.watches.Load() {
		w.touchAll()
		l.tracker.metrics.resets.Inc()
	}
}
