package config

import (
	"crypto/tls"
	"crypto/x509"
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
	// Certificates of that listener. Without them it speaks plain `ws`.
	TLS GatewayTLS `koanf:"tls"`
	// A proxy in front ends TLS. Without TLS of its own the gateway is served beyond loopback only
	// with `true`: tokens and results would cross the network in the clear.
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

// GatewayTLS names files in PEM.
type GatewayTLS struct {
	// The certificate. It is read again when it or its key has changed.
	CertFile string `koanf:"cert_file"`
	// The key of `cert_file`.
	KeyFile string `koanf:"key_file"`
	// Certificates of the authorities that may sign the agents' certificates. With it an agent
	// needs a certificate in addition to its token. It is read only at the start.
	ClientCAFile string `koanf:"client_ca_file"`
}

// On reports whether the replica has a gateway.
func (g *Gateway) On() bool { return g.TokensFile != "" }

// validate checks the section. main is the address of the listener that serves the gateway unless
// it has its own.
func (g *Gateway) validate(main string, p *Problems) {
	listen := main
	p.Between("gateway.max_agents", g.MaxAgents, 1, maxAgents)
	p.DurationBetween("gateway.ping_interval", g.PingInterval, minPingInterval, maxPingInterval)
	g.TLS.validate(g.Listen, p)
	if g.Listen != "" {
		listen = g.Listen
		p.Listen("gateway.listen", listen, "127.0.0.1:7481 or :7481")
		if _, port, err := net.SplitHostPort(listen); listen == main && err == nil && port != "0" {
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
	if host, ok := new(Problems).Listen("", listen, ""); ok && g.TLS.CertFile == "" && !g.BehindProxy && !Loopback(host) {
		p.Addf("gateway", "is served at %q, reachable from other machines, without TLS: "+
			"set gateway.listen and gateway.tls, or gateway.behind_proxy where a proxy ends TLS, or listen on 127.0.0.1", listen)
	}
}

func (t *GatewayTLS) validate(listen string, p *Problems) {
	if *t == (GatewayTLS{}) {
		return
	}
	if listen == "" {
		p.Addf("gateway.tls", "is set without gateway.listen, expected both: the main listener has no TLS")
	}
	if t.CertFile == "" || t.KeyFile == "" {
		p.Addf("gateway.tls.cert_file", "and gateway.tls.key_file go together, expected both")
	} else {
		_, certErr := ReadFile(t.CertFile)
		p.Add("gateway.tls.cert_file", certErr)
		_, keyErr := ReadFile(t.KeyFile)
		p.Add("gateway.tls.key_file", keyErr)
		if certErr == nil && keyErr == nil {
			if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
				p.Addf("gateway.tls.cert_file", "is %q, no certificate of gateway.tls.key_file: %v", t.CertFile, err)
			}
		}
	}
	if t.ClientCAFile == "" {
		return
	}
	data, err := ReadFile(t.ClientCAFile)
	if err != nil {
		p.Add("gateway.tls.client_ca_file", err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
		p.Addf("gateway.tls.client_ca_file", "is %q, which holds no certificate in PEM", t.ClientCAFile)
	}
}
