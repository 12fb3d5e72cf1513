package registry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// dialPatience is how long a Start waits for Redis, if Redis may be away.
const dialPatience = 2 * time.Second

var errNotConnected = &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "redis was not reached since the start"}

// dialFunc dials with fixed options.
type dialFunc func(context.Context) (on *conn, closeAll func(), err error)

// dialer returns a dialFunc with the options that providers and consumers share.
func dialer(url string, access redisclient.Access, prefix string, log *zap.Logger, reg prometheus.Registerer) dialFunc {
	cfg := redisclient.Config{URL: url, Access: access, Name: "freeslot-registry"}
	return func(ctx context.Context) (*conn, func(), error) { return dial(ctx, cfg, prefix, log, reg) }
}

// connection leads to a Redis that may be away at the start. It is safe for concurrent use.
type connection struct {
	dial dialFunc
	log  *zap.Logger
	on   atomic.Pointer[conn] // nil until Redis was reached
	// reached is closed when on is set. closeAll is set before that.
	reached  chan struct{}
	closeAll func()
}

func newConnection(dial dialFunc, log *zap.Logger) *connection {
	return &connection{dial: dial, log: log, reached: make(chan struct{})}
}

// set sets the connections, once.
func (c *connection) set(on *conn, closeAll func()) {
	c.closeAll = closeAll
	c.on.Store(on)
	close(c.reached)
}

// begin makes the first try. If mayBeAway, a Redis that does not answer is no error: keepDialing
// then goes on. A Redis that refuses is an error.
func (c *connection) begin(ctx context.Context, mayBeAway bool) error {
	dialing := ctx
	if mayBeAway {
		var cancel context.CancelFunc
		dialing, cancel = context.WithTimeout(ctx, dialPatience)
		defer cancel()
	}
	on, closeAll, err := c.dial(dialing)
	var refused *rueidis.RedisError
	switch {
	case err == nil:
		c.set(on, closeAll)
	case !mayBeAway || errors.As(err, &refused) || ctx.Err() != nil:
		return err
	default:
		c.log.Warn("registry.starts_without_redis", zap.Error(err))
	}
	return nil
}

// keepDialing tries until Redis is reached, or ctx ends.
func (c *connection) keepDialing(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.MaxInterval = lastReconnect
	outage := logging.NewOutage(c.log, "registry.redis_lost", "registry.redis_back")
	for c.on.Load() == nil && ctx.Err() == nil {
		dialing, cancel := context.WithTimeout(ctx, callTimeout)
		on, closeAll, err := c.dial(dialing)
		cancel()
		switch {
		case err == nil && ctx.Err() != nil:
			closeAll()
		case err == nil:
			c.set(on, closeAll)
			outage.Over()
		default:
			outage.Failed(err)
			select {
			case <-time.After(wait.NextBackOff()):
			case <-ctx.Done():
			}
		}
	}
}

// close closes what was opened. No dialling may be under way.
func (c *connection) close() {
	if c.on.Load() != nil {
		c.closeAll()
	}
}
