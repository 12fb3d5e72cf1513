package nodeagent

import (
	"context"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

// GatewayTLS holds certificates for connections to gateways.
type GatewayTLS struct {
	// The authorities that may sign the gateways' certificates (PEM). Unset: those that the system
	// trusts.
	CAFile string `koanf:"ca_file"`
	// The node's own certificate (PEM), for gateways that want one.
	CertFile string `koanf:"cert_file"`
	// The key of `cert_file` (PEM).
	KeyFile string `koanf:"key_file"`
	// The name in the gateways' certificates. Unset: the host in the address.
	ServerName string `koanf:"server_name"`
}

// resolveGateway drops the default of redis.url when gateway is set: such a node has no Redis.
func (c *Config) resolveGateway(isSet func(string) bool, p *config.Problems) {
	if c.Gateway == "" {
		return
	}
	c.Redis.URL, c.Redis.URLs = "", nil
	for _, path := range []string{"redis.url", "redis.urls"} {
		if isSet(path) {
			p.Addf(path, "is set beside gateway, expected one of them")
		}
	}
}

// validateGateway records what is wrong with the way to the gateways.
func (c *Config) validateGateway(p *config.Problems) {
	if c.Gateway == "" {
		if c.TokenFile != "" {
			p.Addf("token_file", "is set without gateway, expected both")
		}
		if c.GatewayTLS != (GatewayTLS{}) {
			p.Addf("gateway_tls", "is set without gateway, expected both")
		}
		if c.GatewayInsecure {
			p.Addf("gateway_insecure", "is true without gateway, expected both")
		}
		return
	}
	secure := true
	for address := range strings.SplitSeq(c.Gateway, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || (u.Scheme != "wss" && u.Scheme != "ws") || u.Hostname() == "" ||
			u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			p.Addf(
				"gateway",
				"is not the address of a gateway, expected one such as wss://scheduler.example.com:7480, "+
					"or several with commas between",
			)
			break
		}
		secure = secure && u.Scheme == "wss"
	}
	if c.GatewayTLS != (GatewayTLS{}) && !secure && !p.Has("gateway") {
		p.Addf("gateway_tls", "is set, and gateway has an address that does not begin with wss://, expected none")
	}
	if c.GatewayInsecure && secure && !p.Has("gateway") {
		p.Addf("gateway_insecure", "is true, and gateway has no address that begins with ws://, expected one")
	}
	if c.TokenFile == "" {
		p.Addf("token_file", "is missing beside gateway, expected a file with the node's token")
	} else {
		c.validateToken(p)
	}
	(&healthcheck.TLS{
		CAFile: c.GatewayTLS.CAFile, CertFile: c.GatewayTLS.CertFile, KeyFile: c.GatewayTLS.KeyFile,
		ServerName: c.GatewayTLS.ServerName,
	}).Validate("gateway_tls", p)
}

func (c *Config) validateToken(p *config.Problems) {
	text, err := config.ReadFile(c.TokenFile)
	switch words := strings.Fields(string(text)); {
	case err != nil:
		p.Add("token_file", err)
	case len(words) == 0:
		p.Addf("token_file", "names %s, which is empty", c.TokenFile)
	case len(words) > 1:
		p.Addf("token_file", "names %s, which has more than a token", c.TokenFile)
	}
}

// worker returns the settings of the way to the schedulers' state: a gateway or Redis.
func (c *Config) worker() worker.Config {
	if c.Gateway != "" {
		return worker.Config{
			Gateway: c.Gateway, TokenFile: c.TokenFile, GatewayTLS: worker.GatewayTLS(c.GatewayTLS),
			GatewayInsecure: c.GatewayInsecure, Node: c.profile(),
		}
	}
	return worker.Config{
		RedisURL: c.Redis.URL, RedisURLs: c.Redis.URLs, RedisAccess: c.Redis.workerAccess(), Cells: c.Redis.Cells,
		KeyPrefix: c.Redis.KeyPrefix, Node: c.profile(),
	}
}

// CheckGateway asks a gateway what the node's token may do. The node is not registered.
func (c *Config) CheckGateway(ctx context.Context) (worker.GatewayRights, error) {
	return worker.CheckGateway(ctx, c.worker())
}
