package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

// callTimeout bounds a call to Redis that has no deadline of its own.
const callTimeout = 2 * time.Second

// conn is what providers and consumers of one process share to reach Redis.
type conn struct {
	runners []*script.Runner // by tag
	// commands is for calls, events only for subscriptions. The caller of newConn owns both.
	commands, events rueidis.Client
	cluster          bool
}

// newConn makes runners on ready clients. It does no I/O. prefix is the first part of all keys; see
// Prefix. events may be nil for a provider. reg may be nil; a second conn on one registerer panics.
func newConn(prefix string, commands, events rueidis.Client, cluster bool, log *zap.Logger, reg prometheus.Registerer) *conn {
	c := &conn{commands: commands, events: events, cluster: cluster}
	for i, layout := range layouts(prefix, cluster) {
		if i > 0 {
			reg = nil // the first runner's metrics stand for all
		}
		c.runners = append(c.runners, script.NewRunner(script.Config{Layout: layout, CallTimeout: callTimeout}, commands, log, reg))
	}
	return c
}

// dial connects to Redis. events is false for a provider, which needs no subscriptions. close
// closes the connections.
func dial(ctx context.Context, cfg redisclient.Config, prefix string, events bool, log *zap.Logger, reg prometheus.Registerer) (c *conn, closeAll func(), err error) {
	topology, err := redisclient.Inspect(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to redis: %w", err)
	}
	commands, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to redis: %w", err)
	}
	if !events {
		return newConn(prefix, commands.For(0), nil, topology.Cluster, log, reg), commands.Close, nil
	}
	subscriber, err := topology.Open(redisclient.Subscriber)
	if err != nil {
		commands.Close()
		return nil, nil, fmt.Errorf("connect to redis: %w", err)
	}
	c = newConn(prefix, commands.For(0), subscriber.For(0), topology.Cluster, log, reg)
	return c, func() { commands.Close(); subscriber.Close() }, nil
}

// of is where a service lives.
func (c *conn) of(service string) (*script.Runner, keys) {
	runner := c.runners[script.CellOf(service, len(c.runners))]
	return runner, keys{layout: runner.Layout()}
}

// Prefix is the first part of all keys. Systems with different namespaces do not see each other.
func Prefix(keyPrefix, namespace string) string {
	if namespace == "" {
		return keyPrefix
	}
	return keyPrefix + ":" + namespace
}
