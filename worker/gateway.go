package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// GatewayRights tells about a gateway and the rights of the node's token.
type GatewayRights struct {
	// Replica and Version are the gateway's.
	Replica, Version string
	// HeartbeatLimit is the silence after which replicas take the node for dead.
	HeartbeatLimit time.Duration
	// InUse is true while the node lives under another token, or as one that is connected to Redis.
	InUse bool
	// Token is the token's name. Nodes are the ids that it may have; * stands for any text. Expires
	// is RFC 3339, empty for never.
	Token   string
	Nodes   []string
	Expires string
	// What the node may offer; nil and 0 are no limit.
	Services, Pools, Capabilities []string
	Labels                        map[string][]string
	Slots                         int
}

// CheckGateway connects to one of the gateways, asks what the token may do, and leaves. It changes
// nothing. It returns the errors of Config.Validate, or a *freeslot.Error.
func CheckGateway(ctx context.Context, cfg Config) (GatewayRights, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return GatewayRights{}, err
	}
	m, err := gatewayclient.NewMetrics(nil)
	if err != nil {
		return GatewayRights{}, err
	}
	of := cfg.gateway()
	of.Epoch = cell.NewEpoch()
	s, err := gatewayclient.New(of, cfg.Logger, m)
	if err != nil {
		return GatewayRights{}, err
	}
	welcome, err := s.Check(ctx)
	if err != nil {
		return GatewayRights{}, err
	}
	return rightsOf(welcome), nil
}

func rightsOf(w *frame.Welcome) GatewayRights {
	return GatewayRights{
		Replica: w.Replica, Version: w.Version, InUse: w.InUse,
		HeartbeatLimit: time.Duration(w.HeartbeatLimitMS) * time.Millisecond,
		Token:          w.Allows.Token, Nodes: w.Allows.Nodes, Expires: w.Allows.Expires,
		Services: w.Allows.Services, Pools: w.Allows.Pools, Capabilities: w.Allows.Capabilities,
		Labels: w.Allows.Labels, Slots: w.Allows.Slots,
	}
}

// String returns one line for people.
func (r GatewayRights) String() string {
	parts := []string{fmt.Sprintf("token %s may be node %s", r.Token, strings.Join(r.Nodes, ", "))}
	limit := func(what string, allowed []string) {
		if len(allowed) > 0 {
			parts = append(parts, what+" "+strings.Join(allowed, ", "))
		}
	}
	limit("services", r.Services)
	limit("pools", r.Pools)
	limit("capabilities", r.Capabilities)
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		limit("label "+name, r.Labels[name])
	}
	if r.Slots > 0 {
		parts = append(parts, fmt.Sprintf("at most %d slots", r.Slots))
	}
	if r.Expires != "" {
		parts = append(parts, "until "+r.Expires)
	}
	if r.InUse {
		parts = append(parts, "but the node lives under another token or without a gateway")
	}
	return strings.Join(parts, "; ")
}

// gateway returns the configuration of the gateway's client, except the epoch.
func (c *Config) gateway() gatewayclient.Config {
	return gatewayclient.Config{
		Gateway: c.Gateway, Token: c.Token, TokenFile: c.TokenFile, TLS: gatewayclient.TLS(c.GatewayTLS),
		Insecure: c.GatewayInsecure,
		Node:     c.Node.ID, Beat: func() {}, HeartbeatInterval: c.HeartbeatInterval,
		CallTimeout: callTimeout, SpecTimeout: specTimeout,
	}
}

// checkGateway refuses what New can already know to be wrong.
func (c *Config) checkGateway() (bad []error) {
	refuse := func(field, format string, args ...any) { bad = append(bad, freeslot.Invalid(field, format, args...)) }
	if c.Gateway == "" {
		for _, of := range []struct {
			field string
			set   bool
		}{
			{"token", c.Token != ""},
			{"token_file", c.TokenFile != ""},
			{"gateway_tls", c.GatewayTLS != GatewayTLS{}},
			{"gateway_insecure", c.GatewayInsecure},
		} {
			if of.set {
				refuse(of.field, "is set without gateway, expected both or none")
			}
		}
		return bad
	}
	if c.RedisURL != "" || len(c.RedisURLs) > 0 {
		refuse("gateway", "is set beside redis_url, expected one of them")
	}
	of := c.gateway()
	return append(bad, of.Validate()...)
}
