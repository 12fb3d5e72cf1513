package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/console"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// newConsole returns nil for a replica that serves no console.
func newConsole(
	cfg config.Replica, f *fleet, auth *identity.Authenticator, changes *audit.Log, log *zap.Logger,
	reg prometheus.Registerer,
) (*console.Console, error) {
	if !cfg.Console.Enabled {
		return nil, nil
	}
	c := console.Config{
		Replica: cfg.ReplicaID, Build: version.String(), MaxViewers: cfg.Console.MaxViewers,
		MaxTenantViewers: cfg.Console.MaxViewers,
		HidePayloads:     !cfg.Console.Payloads, LongHistory: cfg.Console.PrometheusURL != "",
	}
	for _, l := range cfg.Console.Links {
		c.Links = append(c.Links, console.Link(l))
	}
	if cfg.SeveralTenants() {
		c.MaxTenantViewers = (c.MaxViewers + 1) / 2
	}
	if o := cfg.Auth.OIDC; o.ClientID != "" {
		c.OIDC = &console.OIDC{
			Issuer: o.Issuer, ClientID: o.ClientID, SecretFile: o.ClientSecretFile, RedirectURL: o.RedirectURL,
		}
	}
	return console.New(c, console.Deps{
		Auth: auth, Runner: f.cells.Runners()[0], Audit: changes, Log: log.Named("console"), Metrics: reg,
	})
}

// findingsAge is how old what Redis was asked for findings may be in the console: the time in which
// the sources take turns.
const findingsAge = 15 * time.Second

// consoleSources returns what the console's topics are made from.
func consoleSources(
	cfg config.Replica, f *fleet, past *history.History, board *finding.Board, server *api.Server,
) console.Sources {
	return console.Sources{
		Ask: server.Ask, Findings: func() finding.Report { return board.LookWithin(findingsAge) },
		Fleet: func() console.Fleet {
			health := f.cache.Health()
			ready := server.Readiness().Ready
			return console.Fleet{
				Nodes: countNodes(f.cache, &health), Cells: consoleCells(&health),
				Replicas: []console.Replica{{Name: cfg.ReplicaID, Build: version.String(), Ready: ready}},
			}
		},
		Look:  func() console.Look { return lookAt(f.cache) },
		Nodes: func(see func(n *console.Node)) { eachNode(f.cache, see) },
		Node:  func(id string) (any, bool) { return server.Node(id) },
		Now: func() time.Time {
			if now, ok := past.Now(); ok {
				return now
			}
			return time.Now()
		},
	}
}

func lookAt(nodes *cache.Cache) console.Look {
	look := console.Look{Config: nodes.ConfigVersion(), SilenceLimit: nodes.SilenceLimit()}
	for _, c := range nodes.Health().Cells {
		if c.Stale {
			look.Stale = max(look.Stale, c.Age)
		}
	}
	return look
}

func eachNode(nodes *cache.Cache, see func(n *console.Node)) {
	var n console.Node
	nodes.Glance(func(g *cache.Glance) {
		n = console.Node{
			ID: g.ID, Cell: g.Cell, Used: g.Used, Max: g.Max, Status: g.Status, Silent: g.Silent, Age: g.Age,
			Epoch: string(g.Epoch), Profile: g.Profile, Resources: g.Resources,
		}
		see(&n)
	})
}

// countNodes counts the nodes by state. While a cell does not answer, its nodes seem silent; then
// the state at its last answer counts.
func countNodes(nodes *cache.Cache, health *cache.Health) map[string]int {
	counts := map[string]int{"online": 0, "draining": 0, "silent": 0}
	now, limit := nodes.Now(), int64(nodes.SilenceLimit())
	for _, n := range nodes.AllNodes() {
		at, seen := n.SeenAt()
		since := now - limit
		if c := &health.Cells[n.Cell()]; c.Stale || c.Unreachable {
			since -= int64(c.Age)
		}
		switch {
		case !seen || at < since:
			counts["silent"]++
		case n.Draining():
			counts["draining"]++
		default:
			counts["online"]++
		}
	}
	return counts
}

func consoleCells(health *cache.Health) []console.Cell {
	cells := make([]console.Cell, len(health.Cells))
	for i := range cells {
		c := &health.Cells[i]
		cells[i] = console.Cell{Cell: i, OK: !c.Stale && !c.Unreachable && c.Refusal == ""}
		if !cells[i].OK && c.Synced {
			cells[i].SinceMS = time.Now().Add(-c.Age).UnixMilli()
		}
	}
	return cells
}
