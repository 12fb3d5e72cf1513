package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// probeTimeout bounds Inspect's questions to one address.
const probeTimeout = 2 * time.Second

// Topology maps the cells of a system to servers. It holds no connections. Inspect makes one; the
// zero value is of no use.
type Topology struct {
	// Cluster is true on Redis Cluster: the cells' hash slots decide where they live.
	Cluster bool
	// Servers is the number of standalone servers (or sentinels' masters) of the cells; 1 on a
	// cluster.
	Servers int

	cfg   Config
	addrs []string // the members of the cluster, those that answered first at the front
	links []*links // by server
}

// Inspect finds out what is behind the URLs of c. For one URL it asks any of its addresses whether
// that is a cluster. Several URLs are standalone servers. It does not ask those, because a process
// must start even if one of them is down. A server that refuses to answer counts as standalone.
func Inspect(ctx context.Context, c Config) (*Topology, error) {
	switch len(c.URLs) {
	case 0:
	case 1:
		c.URL, c.URLs = c.URLs[0], nil
	default:
		t := newTopology(c, len(c.URLs))
		for i := range c.URLs {
			if _, err := t.Config(i).option(); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
	c.Cluster = false
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	t := newTopology(c, 1)
	if opt.Sentinel.MasterSet != "" {
		return t, nil
	}
	var failures []error
	for _, addr := range opt.InitAddress {
		found, err := probe(ctx, opt, addr)
		if err == nil {
			t.Cluster, t.cfg.Cluster = found, found
			t.addrs = append([]string{addr}, without(opt.InitAddress, addr)...)
			return t, t.checkDatabase(opt)
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func newTopology(c Config, servers int) *Topology {
	t := &Topology{Servers: servers, cfg: c, links: make([]*links, servers)}
	for i := range t.links {
		t.links[i] = new(links)
	}
	return t
}

func (t *Topology) checkDatabase(opt rueidis.ClientOption) error {
	if t.Cluster && opt.SelectDB != 0 {
		return fmt.Errorf(
			"redis url names database %d, and a cluster has only database 0: leave it out, and set another key prefix instead",
			opt.SelectDB,
		)
	}
	return nil
}

// probe asks one address whether it is a member of a cluster.
func probe(ctx context.Context, opt rueidis.ClientOption, addr string) (cluster bool, err error) {
	opt.InitAddress = []string{addr}
	opt.SelectDB = 0 // a cluster refuses any other database
	opt.PipelineMultiplex = -1
	opt.ReadBufferEachConn, opt.WriteBufferEachConn = agentBuffer, agentBuffer
	client, err := newClient(opt)
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := client.Do(ctx, client.B().Info().Section("cluster").Build()).ToString()
	if err != nil {
		if _, refused := errors.AsType[*rueidis.RedisError](err); refused {
			return false, nil
		}
		return false, err
	}
	return strings.Contains(info, "cluster_enabled:1"), nil
}

// Server returns the index of a cell's server among the URLs; 0 on a cluster.
func (t *Topology) Server(cell int) int { return cell % t.Servers }

// Config returns the configuration for one server by its index, or for the cluster.
func (t *Topology) Config(server int) Config {
	c := t.cfg
	if t.Servers > 1 {
		c.URL = t.cfg.URLs[server]
	}
	c.URLs, c.links = nil, t.links[server]
	return c
}

// Agent opens the client of an agent whose node lives in cell. On a cluster it connects to the
// master that owns slot, the slot of all keys of the cell, and to others only when the slot moves
// or that master does not answer.
func (t *Topology) Agent(ctx context.Context, cell, slot int) (rueidis.Client, error) {
	c := t.Config(t.Server(cell))
	if !t.Cluster {
		return Agent(c)
	}
	owner, err := t.owner(ctx, slot)
	if err != nil {
		return nil, err
	}
	return openAgent(c, owner)
}

// owner returns the address of the master of a hash slot.
func (t *Topology) owner(ctx context.Context, slot int) (string, error) {
	opt, err := t.cfg.option()
	if err != nil {
		return "", err
	}
	opt.ForceSingleClient = true
	var last error
	for _, addr := range t.addrs {
		opt.InitAddress = []string{addr}
		owner, err := ownerBy(ctx, opt, slot)
		if err == nil {
			return owner, nil
		}
		last = err
	}
	return "", last
}

func ownerBy(ctx context.Context, opt rueidis.ClientOption, slot int) (string, error) {
	client, err := newClient(opt)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	ranges, err := client.Do(ctx, client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return "", fmt.Errorf("ask who owns hash slot %d: %w", slot, err)
	}
	for _, m := range ranges {
		if addr, ok := ownerIn(m, slot, opt.InitAddress[0]); ok {
			return addr, nil
		}
	}
	return "", fmt.Errorf("no master owns hash slot %d: the cluster is not whole, see `redis-cli cluster info`", slot)
}
