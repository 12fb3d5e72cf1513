package replica

import (
	"context"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/gateway"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/version"
	registryserver "github.com/freeslot/freeslot/internal/registry/server"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
)

// door is where agents connect. It is nil in a replica without a gateway.
type door struct {
	// cells and their connections are separate from those in fleet: what agents send must not delay
	// what clients wait for.
	cells    *cell.Set
	tokens   *gateway.Tokens
	handler  *gateway.Handler
	listener *gateway.Listener // nil if agents connect to the server's port
	tls      *listener.TLS     // of listener
}

func newDoor(
	cfg config.Replica, auth *identity.Authenticator, conn *connections, log *zap.Logger, reg prometheus.Registerer,
) (*door, error) {
	if conn.gateway == nil {
		return nil, nil
	}
	log = log.Named("gateway")
	cells, err := newGatewayCells(cfg, conn, log)
	if err != nil {
		return nil, err
	}
	d := &door{cells: cells}
	if d.tokens, err = openTokens(cfg, auth, log); err != nil {
		return nil, err
	}
	auth.Elsewhere(d.tokens.Lists)
	d.handler, err = gateway.New(gateway.Config{
		Replica: cfg.ReplicaID, Version: version.String(), HeartbeatLimit: cfg.HeartbeatLimit,
		MaxAgents:    cfg.Gateway.MaxAgents,
		PingInterval: cfg.Gateway.PingInterval,
		Cells:        func(node string) gateway.Cell { return cells.OfNode(node) }, Tokens: d.tokens,
	}, log, reg)
	if err != nil {
		return nil, err
	}
	if cfg.Gateway.Listen != "" {
		d.tls = newTLS("gateway.tls", cfg.Gateway.TLS, log, reg)
		d.listener = gateway.NewListener(gateway.ListenerConfig{
			Listen: cfg.Gateway.Listen, Proxies: cfg.Proxies(),
			TLS: d.tls,
		}, d.handler, log)
	}
	return d, nil
}

func openTokens(cfg config.Replica, auth *identity.Authenticator, log *zap.Logger) (*gateway.Tokens, error) {
	tokens, err := gateway.OpenTokens(cfg.Gateway.TokensFile, log, auth.Lists)
	if err != nil {
		return nil, fmt.Errorf("gateway.tokens_file %w", err)
	}
	return tokens, nil
}

// listTokens returns the tokens of nodes, and the first problems of their file.
func (d *door) listTokens() (all []api.TokenStatus, problems []string) {
	for _, t := range d.tokens.All() {
		all = append(all, api.TokenStatus{
			Source: api.GatewaySource, Name: t.Name, Nodes: t.Line.Nodes, Certificate: t.Line.Certificate,
			ExpiresMS:  api.Millis(t.Expires),
			LastSeenMS: api.Millis(t.Seen),
		})
	}
	return all, d.tokens.Problems()
}

// CheckFiles returns the errors in a valid configuration that a start would find without asking a
// server. It reads the files that cfg names.
func CheckFiles(cfg config.Replica) error {
	if err := registryserver.Check(&cfg); err != nil {
		return err
	}
	auth, err := newAuthenticator(cfg, zap.NewNop())
	if err == nil && cfg.Gateway.TokensFile != "" {
		_, err = openTokens(cfg, auth, zap.NewNop())
	}
	return err
}

// newGatewayCells makes cells like an agent's: they do not look after scripts, jobs or nodes.
func newGatewayCells(cfg config.Replica, conn *connections, log *zap.Logger) (*cell.Set, error) {
	layouts := cell.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, conn.topology.Cluster)
	cells := make([]*cell.Cell, len(layouts))
	for i, layout := range layouts {
		c, err := cell.New(cell.Config{
			Layout: layout, Index: i, Cells: len(layouts), Servers: conn.topology.Servers,
			HeartbeatLimit: cfg.HeartbeatLimit, Scripts: script.Send,
		}, conn.gateway.For(i), log.With(zap.String("cell", strconv.Itoa(i))), nil)
		if err != nil {
			return nil, err
		}
		cells[i] = c
	}
	return cell.NewSet(cells...), nil
}

// gatewayModule starts before the front, which uses the handler and the listener.
func gatewayModule() fx.Option {
	return fx.Module("gateway", fx.Provide(newDoor), fx.Invoke(func(hook feature.Hook, d *door) {
		if d != nil {
			hook(feature.Step{Start: d.cells.Start, Stop: d.cells.Stop})
			hook(feature.Step{Start: d.tokens.Start, Stop: d.tokens.Stop})
		}
	}))
}

// checks returns a check that tells of bad node tokens, and one that fails once the listener has
// stopped serving.
func (d *door) checks() []api.Check {
	if d == nil {
		return nil
	}
	tokens := api.Check{Name: "node_tokens", Ready: d.tokens.Ready}
	if d.listener == nil {
		return []api.Check{tokens}
	}
	return []api.Check{tokens, {Name: "gateway", Ready: func() (bool, string) {
		if err := d.listener.Err(); err != nil {
			return false, err.Error()
		}
		return true, ""
	}}}
}

func (d *door) start(ctx context.Context) error {
	if d == nil || d.listener == nil {
		return nil
	}
	return d.listener.Start(ctx)
}

// drain asks the agents to connect to another replica.
func (d *door) drain(ctx context.Context) error {
	if d == nil {
		return nil
	}
	return d.handler.Drain(ctx)
}

func (d *door) stop(ctx context.Context) error {
	if d == nil {
		return nil
	}
	return d.handler.Stop(ctx)
}

func (d *door) stopListener(ctx context.Context) error {
	if d == nil || d.listener == nil {
		return nil
	}
	return d.listener.Stop(ctx)
}

// certificate returns what the gateway's own listener shows; nil without one.
func (d *door) certificate() *listener.TLS {
	if d == nil {
		return nil
	}
	return d.tls
}
