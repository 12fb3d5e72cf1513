package registry

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

// callTimeout bounds a call to Redis that has no deadline of its own.
const callTimeout = 2 * time.Second

// conn holds what the providers and consumers of one process share to reach Redis.
type conn struct {
	runners []*script.Runner // by tag
	// commands makes calls; subscriptions take a connection of their own from it. The caller of
	// newConn owns it.
	commands rueidis.Client
	cluster  bool
	located  atomic.Pointer[where] // the last result of locate
	// advice says what to do about a NOPERM of Redis, for the role that is needed. It is nil in a
	// replica, whose log has hints of its own.
	advice func(err error, role script.Role) string
}

// newConn makes runners on a ready client. It does no I/O. prefix is the first part of all keys;
// see Prefix. reg may be nil; a second conn on the same registerer panics.
func newConn(prefix string, commands rueidis.Client, cluster bool, log *zap.Logger, reg prometheus.Registerer) *conn {
	c := &conn{commands: commands, cluster: cluster}
	for i, layout := range layouts(prefix, cluster) {
		if i > 0 {
			reg = nil // the first runner's metrics stand for all
		}
		c.runners = append(
			c.runners, script.NewRunner(script.Config{Layout: layout, CallTimeout: callTimeout}, commands, log, reg),
		)
	}
	return c
}

// dial connects to Redis. closeAll closes the connections.
func dial(
	ctx context.Context, cfg redisclient.Config, prefix string, log *zap.Logger, reg prometheus.Registerer,
) (c *conn, closeAll func(), err error) {
	topology, err := redisclient.Inspect(ctx, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to redis: %w", err)
	}
	commands, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to redis: %w", err)
	}
	c = newConn(prefix, commands.For(0), topology.Cluster, log, reg)
	c.advice = func(err error, role script.Role) string {
		return cfg.Access.Denied(err, cfg.URL, func(user string) string { return aclCommand(role, user, prefix) })
	}
	return c, commands.Close, nil
}

// aclCommand returns the command that prints the rules of a user; "" means the user of the role.
func aclCommand(role script.Role, user, prefix string) string {
	command := "schedctl acl --role " + string(role)
	if user != "" {
		command += " --user " + user
	}
	keyPrefix, namespace, _ := strings.Cut(prefix, ":")
	if keyPrefix != DefaultKeyPrefix {
		command += " --key-prefix " + keyPrefix
	}
	if namespace != "" && role == script.RoleRegistry {
		command += " --namespace " + namespace
	}
	return command
}

// explain adds to a NOPERM which rights the user of Redis lacks. role is one that may make the
// call.
func (c *conn) explain(err error, role script.Role) error {
	if err == nil || c.advice == nil {
		return err
	}
	if advice := c.advice(err, role); advice != "" {
		return &DeniedError{Err: err, Advice: advice}
	}
	return err
}

// of returns the runner and the keys of a service.
func (c *conn) of(service string) (*script.Runner, keys) {
	runner := c.runners[script.CellOf(service, len(c.runners))]
	return runner, keys{layout: runner.Layout()}
}

// Prefix returns the first part of all keys. Systems with different namespaces do not see each
// other.
func Prefix(keyPrefix, namespace string) string {
	if namespace == "" {
		return keyPrefix
	}
	return keyPrefix + ":" + namespace
}
