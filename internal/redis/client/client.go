// Package client opens connections to Redis, with the options that each role needs: agents, and the
// commands and subscriptions of replicas. It finds out whether a server is part of a cluster.
// docs/decisions has the measurements behind the options.
package client

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// MaxConnections is the largest number of pipelined connections to one server.
const MaxConnections = 8

const (
	defaultDialTimeout = 2 * time.Second
	// sentinelDialTimeout is shorter. A frozen master accepts connections and answers nothing, and
	// a client that waits for it does not notice that there is a new master.
	sentinelDialTimeout = time.Second
	replicaSilence      = time.Second
	replicaKeepAlive    = 250 * time.Millisecond
	// quietKeepAlive is for connections that wait for news. They learn from the calls of the same
	// process that a server is silent, so four pings a second on each of them are not worth it.
	quietKeepAlive = time.Second
	// spareLife is how long a connection of a call that blocked waits for the next such call. It pings
	// as often as one with calls under way.
	spareLife = time.Minute
	// agentKeepAlive is long, so that thousands of agents do not ping; their calls have deadlines
	// of their own.
	agentKeepAlive = 15 * time.Second
	agentBuffer    = 8 << 10
	agentRing      = 8
	// resubscribeDelay is constant: rueidis' default grows with every disconnect in the life of one
	// Receive and never shrinks again.
	resubscribeDelay = 2 * time.Millisecond
	// redialDelay is for a server that does not accept connections: five hundred attempts a second
	// would not help.
	redialDelay = 20 * time.Millisecond
	// topologyRefresh is how often a replica asks a cluster for the owners of its slots. Agents are
	// many, and ask only when a connection breaks or a command is redirected.
	topologyRefresh = time.Second
	// sentinelRefresh and agentSentinelRefresh are how often sentinels are asked for the master.
	// They announce a change only once, and a demoted master closes no connection, so a client that
	// misses the message would stay with it.
	sentinelRefresh      = 2 * time.Second
	agentSentinelRefresh = 15 * time.Second
)

// Config holds the address of Redis. The zero value of every field except URL is usable.
type Config struct {
	// URL is redis://[user:password@]host:port[/db], rediss:// for TLS, or one of rueidis' forms
	// for several addresses: &addr=host:port for each further node of a cluster, &master_set=name
	// for sentinels.
	URL string
	// URLs are several standalone servers, each with its share of the cells; URL is not used then.
	// Only Inspect uses them: a role is opened for one server.
	URLs []string
	// Cluster is true if URL names nodes of a Redis Cluster; Inspect finds that out.
	Cluster bool
	// Name is shown by CLIENT LIST; empty means "freeslot".
	Name string
	// Access holds credentials and certificates.
	Access Access
	// Connections is the number of pipelined connections that a replica keeps to each server: a
	// power of two up to MaxConnections. 0 means 1, the fastest measured.
	Connections int

	// links are shared by the clients of one Topology. nil means that a client has its own.
	links *links
}

func (c Config) option() (rueidis.ClientOption, error) {
	opt, err := parseURL(c.URL)
	if err != nil {
		return opt, badURL(c.URL, err)
	}
	if c.Connections < 0 || c.Connections > MaxConnections || bits.OnesCount(uint(c.Connections)) > 1 {
		return opt, fmt.Errorf("redis connections is %d, expected 1, 2, 4 or %d", c.Connections, MaxConnections)
	}
	if err := c.Access.apply(&opt, c.URL); err != nil {
		return opt, err
	}
	// The library's name in CLIENT LIST is not worth a command that Redis denies to users with few
	// rights.
	opt.ClientSetInfo = rueidis.DisableClientSetInfo
	opt.ClientName = cmp.Or(c.Name, "freeslot")
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.TopologyRefreshInterval = sentinelRefresh
		opt.Sentinel.Dialer.Resolver = toSentinel
		opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, sentinelDialTimeout)
	}
	if opt.DialCtxFn == nil { // otherwise it dials a unix socket
		opt.DialCtxFn = dial
	}
	opt.DisableCache = true
	// For one server, or the master that sentinels name. Otherwise rueidis treats the embedded
	// server as a cluster.
	opt.ForceSingleClient = !c.Cluster
	opt.Dialer.Timeout = cmp.Or(opt.Dialer.Timeout, defaultDialTimeout)
	return opt, nil
}

// open opens a client with the options of c and further ones from set.
func (c Config) open(set func(*rueidis.ClientOption)) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	opt.PipelineMultiplex = -1
	set(&opt)
	if !opt.ForceSingleClient { // a cluster redirects, and does not refuse
		return newClient(opt)
	}
	return newWatched(opt, cmp.Or(c.links, new(links)))
}

// forReplica makes calls of a replica notice a silent server in 1.3 s.
func forReplica(opt *rueidis.ClientOption) {
	opt.ConnWriteTimeout = replicaSilence
	opt.Dialer.KeepAlive = replicaKeepAlive
	opt.ClusterOption.ShardsRefreshInterval = topologyRefresh
}

// quieten makes a connection ping seldom. In a cluster no call tells it that a server is silent.
func (c Config) quieten(opt *rueidis.ClientOption) {
	if !c.Cluster {
		opt.Dialer.KeepAlive = quietKeepAlive
	}
}

// addr returns the first address of a valid URL.
func (c Config) addr() string {
	opt, err := c.option()
	if err != nil {
		return ""
	}
	return opt.InitAddress[0]
}

// Commands opens the client on which a replica runs its scripts and blocking reads.
func Commands(c Config) (rueidis.Client, error) {
	client, err := c.open(func(opt *rueidis.ClientOption) {
		forReplica(opt)
		if c.Connections > 1 {
			opt.PipelineMultiplex = bits.Len(uint(c.Connections)) - 1
		}
		opt.BlockingPoolCleanup = spareLife
	})
	if w, ok := client.(*watched); ok {
		w.looks.Go(w.askRoles)
	}
	return client, err
}

// Agent opens the client of a node agent. Agents are many, so it holds few connections and small
// buffers, and does not ping. On a cluster see [Topology.Agent].
func Agent(c Config) (rueidis.Client, error) { return openAgent(c, "") }

// openAgent starts from addr in place of the addresses of c, unless addr is empty.
func openAgent(c Config, addr string) (rueidis.Client, error) {
	return c.open(func(opt *rueidis.ClientOption) {
		if addr != "" {
			opt.InitAddress = []string{addr}
		}
		opt.Dialer = net.Dialer{Timeout: opt.Dialer.Timeout, KeepAlive: agentKeepAlive}
		opt.ConnWriteTimeout = agentKeepAlive
		if opt.Sentinel.MasterSet != "" {
			opt.Sentinel.TopologyRefreshInterval = agentSentinelRefresh
		}
		opt.BlockingPoolSize = 2
		opt.ReadBufferEachConn, opt.WriteBufferEachConn = agentBuffer, agentBuffer
		opt.RingScaleEachConn = agentRing
	})
}

// At opens a client to the server at addr alone, with the credentials and TLS of c.
func At(c Config, addr string) (rueidis.Client, error) {
	return c.open(func(opt *rueidis.ClientOption) {
		opt.InitAddress, opt.Sentinel = []string{addr}, rueidis.SentinelOption{}
		opt.ForceSingleClient, opt.SelectDB = true, 0
		opt.ConnWriteTimeout = replicaSilence
	})
}

// Subscriber opens a client for Receive and nothing else. All subscriptions to a server share its
// connection: a slow handler stalls the others.
func Subscriber(c Config) (rueidis.Client, error) {
	return c.open(func(opt *rueidis.ClientOption) {
		forReplica(opt)
		c.quieten(opt)
		opt.RetryDelay = retryDelay
	})
}

func retryDelay(_ int, _ rueidis.Completed, err error) time.Duration {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return redialDelay
	}
	return resubscribeDelay
}
