package replica

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/internal/process/version"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// connections holds what is opened before anything is built, and closed last.
type connections struct {
	topology *redisclient.Topology
	// commands run scripts and blocking reads. events only subscribe.
	commands *redisclient.Clients
	events   *redisclient.Clients
	// gateway is for agents that connect to this replica; nil without a gateway.
	gateway *redisclient.Clients
	tracing *tracing.Tracing
}

// connect connects to Redis. A replica cannot work without Redis, so an outage ends the start. If
// there are several servers, one must answer.
func (r *Replica) connect(ctx context.Context) (*connections, error) {
	cfg := r.cfg
	var conn connections
	var err error
	if conn.topology, err = redisclient.Inspect(ctx, redisConfig(cfg)); err != nil {
		return nil, r.unreachable(err)
	}
	if conn.commands, err = conn.topology.Open(redisclient.Commands); err != nil {
		return nil, r.unreachable(err)
	}
	if conn.events, err = conn.topology.Open(redisclient.Subscriber); err != nil {
		_ = conn.close(ctx)
		return nil, r.unreachable(err)
	}
	if cfg.Gateway.On() && r.served != nil {
		if conn.gateway, err = conn.topology.Open(redisclient.Commands); err != nil {
			_ = conn.close(ctx)
			return nil, r.unreachable(err)
		}
	}
	conn.tracing, err = tracing.Open(ctx, tracing.Config{
		Endpoint: cfg.Tracing.OTLPEndpoint, SampleRatio: cfg.Tracing.SampleRatio,
		Service: "freeslot-scheduler", Version: version.String(), Instance: cfg.ReplicaID,
	})
	if err != nil {
		_ = conn.close(ctx)
		return nil, err
	}
	return &conn, nil
}

func redisConfig(cfg config.Replica) redisclient.Config {
	return redisclient.Config{
		URL: cfg.Redis.URL, URLs: cfg.Redis.URLs, Access: cfg.Redis.Access(),
		Name: "freeslot-" + cfg.ReplicaID, Connections: cfg.Redis.Connections,
	}
}

// close never fails. It returns an error because a step needs one.
func (c *connections) close(ctx context.Context) error {
	if c.tracing != nil {
		_ = c.tracing.Close(ctx) // without a collector spans are lost, nothing else
	}
	for _, clients := range []*redisclient.Clients{c.gateway, c.events, c.commands} {
		if clients != nil {
			clients.Close()
		}
	}
	return nil
}

// redisHost returns a URL without its credentials.
func redisHost(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" && u.Path == "" {
		return "?"
	}
	if u.Host == "" {
		return u.Path
	}
	return u.Host
}

// redisHosts returns the servers without their credentials.
func redisHosts(r config.Redis) []string {
	if r.URL != "" {
		return []string{redisHost(r.URL)}
	}
	hosts := make([]string, len(r.URLs))
	for i, u := range r.URLs {
		hosts[i] = redisHost(u)
	}
	return hosts
}

// unreachable returns an error that names the Redis, and never the password.
func (r *Replica) unreachable(err error) error {
	var urlError *url.Error
	if errors.As(err, &urlError) {
		return errors.New("redis.url is not a URL")
	}
	where := "redis.url in the configuration, or --redis-url"
	switch {
	case r.served == nil:
		where = "redis_url or redis_urls"
	case r.cfg.Redis.URL == "":
		where = "redis.urls in the configuration"
	}
	return fmt.Errorf("redis at %s cannot be used: %w (%s)", strings.Join(redisHosts(r.cfg.Redis), ", "), err, where)
}
