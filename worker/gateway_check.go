package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/cell"
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
	m, err := newGatewayMetrics(nil)
	if err != nil {
		return GatewayRights{}, err
	}
	s, err := newGatewayStore(cfg, cell.NewEpoch(), func() {}, m)
	if err != nil {
		return GatewayRights{}, err
	}
	return s.check(ctx)
}

func (s *gatewayStore) check(ctx context.Context) (GatewayRights, error) {
	defer s.transport.CloseIdleConnections()
	conn, err := s.dialAny(ctx, true)
	if err != nil {
		return GatewayRights{}, err
	}
	_ = conn.socket.Close(websocket.StatusNormalClosure, "")
	w := conn.welcome
	return GatewayRights{
		Replica: w.Replica, Version: w.Version, HeartbeatLimit: conn.limit(), InUse: w.InUse,
		Token: w.Allows.Token, Nodes: w.Allows.Nodes, Expires: w.Allows.Expires,
		Services: w.Allows.Services, Pools: w.Allows.Pools, Capabilities: w.Allows.Capabilities,
		Labels: w.Allows.Labels, Slots: w.Allows.Slots,
	}, nil
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
