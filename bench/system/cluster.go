package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/away"
	"github.com/freeslot/freeslot/bench/measure"
)

// busOffset is how far a server's port for the other servers is from its port for clients.
const busOffset = 10_000

// Cluster is masters without replicas.
type Cluster struct {
	servers []*Redis
	// proxies are where clients find the servers, in the same order; none where these are not away.
	proxies []*away.Proxy
}

// StartCluster starts a cluster of so many masters, each of them at a distance. The caller stops it.
func StartCluster(ctx context.Context, masters int, distance time.Duration) (_ *Cluster, err error) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		return nil, err
	}
	c := new(Cluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*measure.StartLimit)
	defer cancel()
	args := []string{"--cluster", "create"}
	for range masters {
		s, err := StartRedis(ctx, AOFOff, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
		args = append(args, s.Addr())
		if distance > 0 {
			if err := c.move(ctx, s, distance); err != nil {
				return nil, err
			}
		}
	}
	if out, err := exec.CommandContext(ctx, cli, append(args, "--cluster-yes")...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redis-cli --cluster create: %w: %s", err, lastLine(out))
	}
	return c, c.await(ctx)
}

// move has a server announce to clients that it is at a proxy; the servers find each other directly.
func (c *Cluster) move(ctx context.Context, s *Redis, distance time.Duration) error {
	proxy, err := away.Open(s.Addr(), distance)
	if err != nil {
		return err
	}
	c.proxies = append(c.proxies, proxy)
	_, clients, err := net.SplitHostPort(proxy.Addr())
	if err != nil {
		return err
	}
	_, direct, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(direct)
	if err != nil {
		return err
	}
	return s.Client.Do(ctx, s.Client.B().ConfigSet().ParameterValue().ParameterValue("cluster-announce-port", clients).
		ParameterValue("cluster-announce-bus-port", strconv.Itoa(port+busOffset)).Build()).Error()
}

// await waits until every master reports that the cluster is whole.
func (c *Cluster) await(ctx context.Context) error {
	for _, s := range c.servers {
		for {
			info, err := s.Client.Do(ctx, s.Client.B().ClusterInfo().Build()).ToString()
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.servers))) {
				break
			}
			if err := measure.SleepUntil(ctx, time.Now().Add(startPoll)); err != nil {
				return fmt.Errorf("the cluster does not form: %w", err)
			}
		}
	}
	return nil
}

// URL names all servers, as the programs take it.
func (c *Cluster) URL() string {
	addrs := make([]string, len(c.servers))
	for i, s := range c.servers {
		addrs[i] = s.Addr()
	}
	for i, p := range c.proxies {
		addrs[i] = p.Addr()
	}
	return "redis://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
}

// Clients are for the servers' own figures.
func (c *Cluster) Clients() []rueidis.Client {
	clients := make([]rueidis.Client, len(c.servers))
	for i, s := range c.servers {
		clients[i] = s.Client
	}
	return clients
}

// Stop ends proxies and servers.
func (c *Cluster) Stop() error {
	var errs []error
	for _, p := range c.proxies {
		errs = append(errs, p.Close())
	}
	for _, s := range c.servers {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}
