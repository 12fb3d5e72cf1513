package replica

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// Replica is one scheduler replica, for one Start and one Stop. Jobs is for the time after Start.
// So are Alive, Done, Err and Addr in a replica with listeners.
type Replica struct {
	cfg config.Replica
	log *zap.Logger
	reg prometheus.Registerer
	// served is what /metrics serves; nil for a replica without listeners.
	served prometheus.Gatherer
	// probes holds further kinds of the registry's checks.
	probes map[string]centre.Probe

	jobs   *dispatch.Dispatcher
	server *api.Server // nil without listeners
	door   *door       // nil without a gateway
	app    *app        // nil unless it is running
}

// New makes a replica that serves HTTP and WebSocket. It does no I/O. The replica registers its
// metrics with reg; /metrics serves everything in reg.
func New(cfg config.Replica, log *zap.Logger, reg *prometheus.Registry) *Replica {
	return &Replica{cfg: cfg, log: log, reg: reg, served: reg}
}

// NewEmbedded makes a replica without listeners, for a process that submits jobs through Jobs.
// Otherwise it is like New. probes holds further kinds of the registry's checks.
func NewEmbedded(
	cfg config.Replica, probes map[string]centre.Probe, log *zap.Logger, reg prometheus.Registerer,
) *Replica {
	return &Replica{cfg: cfg, probes: probes, log: log, reg: reg}
}

// Start connects to Redis, starts everything and returns once clients are served. ctx bounds only
// the start. If Start returns an error, nothing runs. The error is one line that says what to do.
func (r *Replica) Start(ctx context.Context) error {
	for _, w := range r.cfg.Warnings {
		r.log.Warn("config.replaced", zap.String("key", w.Path), zap.String("meaning", w.Message))
	}
	for _, w := range r.cfg.Insecure {
		r.log.Error("config.insecure", zap.String("key", w.Path), zap.String("meaning", w.Message))
	}
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	a := &app{undo: r.cfg.DrainTimeout}
	if made, err := a.start(ctx, r.wiringLog(), r.modules(conn)); err != nil {
		if !made {
			_ = conn.close(ctx)
		}
		return err
	}
	r.app = a
	address := "" // of the listeners; empty without any
	if r.server != nil {
		address = r.server.Addr()
	}
	r.log.Info("replica.started",
		zap.String(logging.FieldReplica, r.cfg.ReplicaID),
		zap.String(logging.FieldAddress, address),
		zap.Strings("redis", redisHosts(r.cfg.Redis)),
		zap.Int("cells", r.cfg.Redis.Cells),
		zap.String("key_prefix", r.cfg.Redis.KeyPrefix),
		zap.String("version", version.String()),
		zap.Bool("tokens", len(r.cfg.Tokens) > 0 || r.cfg.TokensFile != "" || r.cfg.Auth.OIDC.On()),
		zap.String("gateway", r.GatewayAddr()),
	)
	return nil
}

// wiringLog returns nil for an embedded replica: its wiring is of no use to the program's log.
func (r *Replica) wiringLog() *zap.Logger {
	if r.served == nil {
		return nil
	}
	return r.log
}

// Stop drains and stops everything. When ctx ends, it cuts off what is left.
func (r *Replica) Stop(ctx context.Context) error {
	r.log.Info("replica.draining", zap.String(logging.FieldReplica, r.cfg.ReplicaID))
	var err error
	if r.app != nil {
		err = r.app.stop(ctx)
		r.app = nil
	}
	r.log.Info("replica.stopped", zap.String(logging.FieldReplica, r.cfg.ReplicaID))
	return err
}

// Jobs returns the dispatcher, which places jobs and delivers their results.
func (r *Replica) Jobs() *dispatch.Dispatcher { return r.jobs }

// Alive returns true. It does not return while a part of the replica holds up what the other parts
// need. An outage of Redis does not do that.
func (r *Replica) Alive() bool {
	r.server.Readiness()
	return true
}

// Done is closed when the replica has stopped serving, by Stop or by itself.
func (r *Replica) Done() <-chan struct{} { return r.server.Done() }

// Err returns why it stopped serving by itself; nil after Stop.
func (r *Replica) Err() error { return r.server.Err() }

// Addr returns the address at which the replica listens.
func (r *Replica) Addr() string { return r.server.Addr() }

// GatewayAddr returns the address at which agents connect; empty without a gateway.
func (r *Replica) GatewayAddr() string {
	switch {
	case r.door == nil:
		return ""
	case r.door.listener != nil:
		return r.door.listener.Addr()
	default:
		return r.Addr()
	}
}
