// Package client opens Redis clients with the options that each role
// needs. The figures behind the options are in docs/decisions.
package client

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// MaxConnections is the most pipelined connections to one server.
const MaxConnections = 8

const (
	defaultDialTimeout = 2 * time.Second
	// sentinelDialTimeout is less, as a master that is frozen accepts connections and answers nothing, and who waits
	// for it does not hear meanwhile that there is another.
	sentinelDialTimeout = time.Second
	// replicaSilence with replicaKeepAlive makes a replica notice a silent server in 1.3 s.
	replicaSilence   = time.Second
	replicaKeepAlive = 250 * time.Millisecond
	// agentKeepAlive keeps thousands of agents from pinging; their calls have deadlines of their own.
	agentKeepAlive = 15 * time.Second
	agentBuffer    = 8 << 10
	agentRing      = 8
	// resubscribeDelay is constant: rueidis' default grows with every
	// disconnect in the life of one Receive and never shrinks again.
	resubscribeDelay = 2 * time.Millisecond
	// redialDelay is for a server that does not accept connections: it is not
	// helped up by five hundred attempts a second.
	redialDelay = 20 * time.Millisecond
	// topologyRefresh is how often a replica asks a cluster who owns which slots. Agents,
	// who are many, ask only when a connection breaks or a command is redirected.
	topologyRefresh = time.Second
	// sentinelRefresh and agentSentinelRefresh are how often sentinels are asked who is the
	// master: they announce a change once, a demoted master closes no connection, and who
	// misses the news would stay with it.
	sentinelRefresh      = 2 * time.Second
	agentSentinelRefresh = 15 * time.Second
)

// Config says where Redis is. The zero value of every field but URL is usable.
type Config struct {
	// URL is redis://[user:password@]host:port[/db], rediss:// for TLS, or one of
	// rueidis' forms for several addresses: &addr=host:port for each further node of a
	// cluster, &master_set=name for sentinels.
	URL string
	// URLs are several standalone servers, each with its share of the cells; URL is
	// not used then. Only Inspect knows them: a role is opened for one server.
	URLs []string
	// Cluster is true where URL names nodes of a Redis Cluster; Inspect finds out.
	Cluster bool
	// Name is shown by CLIENT LIST; empty means "freeslot".
	Name string
	// Access is who this process is, and how servers prove who they are.
	Access Access
	// Connections is how many pipelined connections a replica keeps to each
	// server: a power of two up to MaxConnections. 0 means 1, the fastest measured.
	Connections int
}

func (c Config) option() (rueidis.ClientOption, error) {
	opt, err := rueidis.ParseURL(c.URL)
	if err != nil {
		return opt, badURL(c.URL, err)
	}
	if c.Connections < 0 || c.Connections > MaxConnections || bits.OnesCount(uint(c.Connections)) > 1 {
		return opt, fmt.Errorf("redis connections is %d, expected 1, 2, 4 or %d", c.Connections, MaxConnections)
	}
	if err := c.Access.apply(&opt, c.URL); err != nil {
		return opt, err
	}
	// A name of the library in CLIENT LIST is not worth a command that users with few rights are denied.
	opt.ClientSetInfo = rueidis.DisableClientSetInfo
	opt.ClientName = c.Name
	if opt.ClientName == "" {
		opt.ClientName = "freeslot"
	}
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.TopologyRefreshInterval = sentinelRefresh
		if opt.Dialer.Timeout == 0 {
			opt.Dialer.Timeout = sentinelDialTimeout
		}
	}
	opt.DisableCache = true
	// One server, or the master that sentinels name. Without this rueidis takes
	// the embedded server for a cluster.
	opt.ForceSingleClient = !c.Cluster
	if opt.Dialer.Timeout == 0 {
		opt.Dialer.Timeout = defaultDialTimeout
	}
	return opt, nil
}

// addr is the first address of a valid URL.
func (c Config) addr() string {
	opt, err := c.option()
	if err != nil {
		return ""
	}
	return opt.InitAddress[0]
}

// Commands opens the client on which a replica runs its scripts and blocking reads.
func Commands(c Config) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	opt.ConnWriteTimeout = replicaSilence
	opt.Dialer.KeepAlive = replicaKeepAlive
	opt.ClusterOption.ShardsRefreshInterval = topologyRefresh
	opt.PipelineMultiplex = -1
	if c.Connections > 1 {
		opt.PipelineMultiplex = bits.Len(uint(c.Connections)) - 1
	}
	return newClient(opt)
}

// Agent opens the client of a node agent: agents are many, so it holds few
// connections, small buffers, and does not ping. On a cluster see [Topology.Agent].
func Agent(c Config) (rueidis.Client, error) { return openAgent(c, "") }

// openAgent starts from addr, unless it is empty, in place of the addresses of c.
func openAgent(c Config, addr string) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	if addr != "" {
		opt.InitAddress = []string{addr}
	}
	opt.Dialer = net.Dialer{Timeout: opt.Dialer.Timeout, KeepAlive: agentKeepAlive}
	opt.ConnWriteTimeout = agentKeepAlive
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.TopologyRefreshInterval = agentSentinelRefresh
	}
	opt.PipelineMultiplex = -1
	opt.BlockingPoolSize = 2
	opt.ReadBufferEachConn, opt.WriteBufferEachConn = agentBuffer, agentBuffer
	opt.RingScaleEachConn = agentRing
	return newClient(opt)
}

// At opens a client to the server at addr alone, with the credentials and TLS of c.
func At(c Config, addr string) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	opt.InitAddress, opt.Sentinel = []string{addr}, rueidis.SentinelOption{}
	opt.ForceSingleClient, opt.SelectDB = true, 0
	opt.ConnWriteTimeout = replicaSilence
	opt.PipelineMultiplex = -1
	return newClient(opt)
}

// Subscriber opens a client for Receive and nothing else. All subscriptions to a
// server share its connection: a slow handler stalls the others.
func Subscriber(c Config) (rueidis.Client, error) {
	opt, err := c.option()
	if err != nil {
		return nil, err
	}
	opt.ConnWriteTimeout = replicaSilence
	opt.Dialer.KeepAlive = replicaKeepAlive
	opt.ClusterOption.ShardsRefreshInterval = topologyRefresh
	opt.PipelineMultiplex = -1
	opt.RetryDelay = retryDelay
	return newClient(opt)
}

func retryDelay(_ int, _ rueidis.Completed, err error) time.Duration {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return redialDelay
	}
	return resubscribeDelay
}

// CheckURL parses a URL as a connection would, and connects to nothing. The error has
// no secret in it.
func CheckURL(raw string) error {
	_, err := rueidis.ParseURL(raw)
	if err == nil {
		return nil
	}
	if bad := badURL(raw, err); errors.As(bad, new(*url.Error)) {
		return errors.New("it cannot be parsed")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}

// badURL says what is wrong with a URL without repeating a password. What the
// parsers say is left out where they may have taken part of one for something
// else; it is a *url.Error then.
func badURL(raw string, err error) error {
	u, parseErr := url.Parse(raw)
	if parseErr != nil || u.User == nil && strings.Contains(raw, "@") {
		return &url.Error{Op: "parse", URL: "redis url", Err: errors.New("expected redis://[user:password@]host:port[/db]")}
	}
	return fmt.Errorf("redis url %q: %w", raw[strings.LastIndexByte(raw, '@')+1:], err)
}
