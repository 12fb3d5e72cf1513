package config

import (
	"net"
	"time"
)

// DefaultMaxAgents is the number of agents that a replica takes unless configured otherwise.
const DefaultMaxAgents = 10_000

// defaultPingInterval applies to sessions of clients and of agents.
const defaultPingInterval = 20 * time.Second

// maxAgents is bounded because each agent takes memory, and a file descriptor.
const maxAgents = 100_000

// Bounds of the intervals between pings: each ping costs a wake-up on both sides, and a connection
// that died in silence takes up its place until the next one.
const (
	minPingInterval = time.Second
	maxPingInterval = 10 * time.Minute
)

// Gateway lets agents reach Redis through this replica.
type Gateway struct {
	// The file that tells which tokens may be which nodes (docs/gateway.md). It is read again when
	// it changes. Unset: no agent comes in through this replica.
	TokensFile string `koanf:"tokens_file"`
	// `host:port` of a listener for agents alone. Unset: they come in at `listen`.
	Listen string `koanf:"listen"`
	// Certificates of that listener. Without them it speaks plain `ws`. Agents at `listen` have the
	// replica's `tls`.
	TLS ListenTLS `koanf:"tls"`
	// A proxy in front ends TLS. Without TLS of its own the gateway is served beyond loopback only
	// with `true`: tokens and results would cross the network in the clear. At `listen` it is also
	// served with the replica's `tls` or `behind_proxy`.
	BehindProxy bool `koanf:"behind_proxy"`
	// How many agents the replica takes, 1 to 100000. Further ones are refused, and go to another
	// replica. Each takes memory and a file descriptor, but no connection to Redis.
	MaxAgents int `koanf:"max_agents"`
	// How often each agent is pinged, 1s to 10m. It has to be shorter than the silence after which
	// a proxy in front cuts a connection.
	PingInterval time.Duration `koanf:"ping_interval"`
}

// Session configures the sessions of clients.
type Session struct {
	// How often each client is pinged, 1s to 10m. It has to be shorter than the silence after which
	// a proxy in front cuts a connection.
	PingInterval time.Duration `koanf:"ping_interval"`
}

// On reports whether the replica has a gateway.
func (g *Gateway) On() bool { return g.TokensFile != "" }

// validate checks the section of r. Without a listener of its own the gateway is served at
// r.Listen.
func (g *Gateway) validate(r *Replica, p *Problems) {
	p.Between("gateway.max_agents", g.MaxAgents, 1, maxAgents)
	p.DurationBetween("gateway.ping_interval", g.PingInterval, minPingInterval, maxPingInterval)
	g.TLS.validate("gateway.tls", p)
	if g.TLS != (ListenTLS{}) && g.Listen == "" {
		p.Addf("gateway.tls", "is set without gateway.listen, expected both, or tls: that is for agents at listen")
	}
	listen, secure, expected := r.Listen, g.BehindProxy || r.BehindProxy || r.TLS.CertFile != "", "tls"
	if g.Listen != "" {
		listen, secure, expected = g.Listen, g.BehindProxy || g.TLS.CertFile != "", "gateway.tls"
		p.Listen("gateway.listen", listen, "127.0.0.1:7481 or :7481")
		if _, port, err := net.SplitHostPort(listen); listen == r.Listen && err == nil && port != "0" {
			p.Addf(
				"gateway.listen", "is %q like listen, expected another address, or none: agents come in at listen then", listen,
			)
		}
	}
	if !g.On() {
		if g.Listen != "" || g.BehindProxy {
			p.Addf("gateway.tokens_file", "is missing, expected the file that says which tokens may be which nodes")
		}
		return
	}
	if _, err := ReadFile(g.TokensFile); err != nil {
		p.Add("gateway.tokens_file", err)
	}
	if host, ok := new(Problems).Listen("", listen, ""); ok && !secure && !Loopback(host) {
		p.Addf("gateway", "is served at %q, reachable from other machines, without TLS: "+
			"set %s, or gateway.behind_proxy where a proxy ends TLS, or listen on 127.0.0.1", listen, expected)
	}
}
