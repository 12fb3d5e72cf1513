package presence

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/beat"
)

// DefaultInterval is the interval at which a replica reports itself. Together with missed it bounds
// how long others take to notice that a replica is gone: 9.7 s, because checks of instances must
// move within 10 s.
const DefaultInterval = 1900 * time.Millisecond

// missed is how many intervals a replica may be silent before the others take it for gone. A pause
// of Redis of a few seconds then changes nothing.
const missed = 4

// callTimeout bounds one call.
const callTimeout = time.Second

// Backend is where replicas report themselves. *Store implements it.
type Backend interface {
	// Present reports that the replica runs, valid for limit, and returns all running replicas,
	// sorted by name.
	Present(ctx context.Context, r Replica, limit time.Duration) ([]Replica, error)
	// Leave reports that it no longer runs.
	Leave(ctx context.Context, replica string, limit time.Duration) error
}

// Replica is what the others know of a replica.
type Replica struct {
	Name string
	// HeartbeatLimit is its configured limit; 0 means unknown.
	HeartbeatLimit time.Duration
	// AtMS is when it last reported itself, in milliseconds since 1970 by Redis' clock.
	AtMS int64
	// Figures is what it reports beside, which only the receiver reads; "" for none.
	Figures string
	// ReadsHeartbeats says that its release reads the heartbeats that have no event, only in an answer.
	ReadsHeartbeats bool
	// Status is what it says of itself, only for a call; "" if it is as before.
	Status string
}

// Config configures a Presence.
type Config struct {
	// Replica is the name of this replica. No other replica may have it.
	Replica string
	// HeartbeatLimit is compared with the limits of other replicas, unless it is 0.
	HeartbeatLimit time.Duration
	// Interval is the time between two calls; 0 means DefaultInterval. It varies by a tenth.
	Interval time.Duration
	// OnChange gets the names of all replicas, this one among them, sorted: the names of the first
	// answer, even if this replica is alone, and then whenever they change. It must not block, and
	// must not change what it gets. It may be nil.
	OnChange func(replicas []string)
	// Figures returns the figures to report with each call. It must not block. It may be nil.
	Figures func() string
	// Status returns what to say of the replica, for Store.Statuses, or "" if it is as before. It must
	// return a text at least every 30 s. It must not block. It may be nil.
	Status func() string
	// OnAnswer gets the answer to each call: when Redis answered, as Replica.AtMS, and all replicas.
	// It must not block, and must not change what it gets. It may be nil.
	OnAnswer func(nowMS int64, all []Replica)
}

// Presence reports a replica until Stop. All methods are safe for concurrent use.
type Presence struct {
	cfg     Config
	backend Backend
	log     *zap.Logger

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	done        chan struct{}
	known       []string // nil before the first answer; used by the loop alone
	// differing is the detail that Ready returns, "" if there is nothing to report.
	differing atomic.Pointer[string]
}

// New makes a Presence. It does no I/O.
func New(cfg Config, backend Backend, log *zap.Logger) *Presence {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func([]string) {}
	}
	if cfg.Figures == nil {
		cfg.Figures = func() string { return "" }
	}
	if cfg.Status == nil {
		cfg.Status = func() string { return "" }
	}
	if cfg.OnAnswer == nil {
		cfg.OnAnswer = func(int64, []Replica) {}
	}
	p := &Presence{cfg: cfg, backend: backend, log: log, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.differing.Store(new(string))
	return p
}

// Start starts the loop. It does not wait.
func (p *Presence) Start() { p.start.Do(func() { go p.loop() }) }

// Join is Start for a replica that refuses to differ. If the first answer has a replica with
// another heartbeat limit, it returns a *freeslot.Error with code conflict, and nothing runs.
// Without an answer it starts, and only the log will report a difference.
func (p *Presence) Join(ctx context.Context) error {
	_ = p.say() // the loop repeats the call and logs its failures
	if detail := *p.differing.Load(); detail != "" {
		_ = p.Stop(ctx) // a failure is in the log
		return &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "heartbeat_limit",
			Message: strings.TrimPrefix(detail, degraded) +
				": set heartbeat_limit and heartbeat_interval as there, or stop those replicas first",
		}
	}
	p.Start()
	return nil
}

// Stop ends the loop and tells the others, so that they need not find out by waiting. Only the log
// reports a failure of that. It takes at most a second, whatever ctx says. Further calls return
// nil.
func (p *Presence) Stop(ctx context.Context) (err error) {
	p.start.Do(func() { close(p.done) }) // a Presence that is stopped before its Start never starts
	p.stop.Do(func() {
		p.cancel()
		// Not within ctx: the steps that stopped before may have used it up, and this is short.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		select {
		case <-p.done:
		case <-call.Done():
			err = call.Err()
			return
		}
		if err := p.backend.Leave(call, p.cfg.Replica, p.limit()); err != nil {
			p.log.Info("presence.not_told", zap.Error(err))
		}
	})
	return err
}

func (p *Presence) limit() time.Duration { return missed * p.cfg.Interval }

func (p *Presence) loop() {
	defer close(p.done)
	failed := false
	for {
		err := p.say()
		if err != nil && !failed && p.ctx.Err() == nil {
			p.log.Warn("presence.not_told", zap.Error(err))
		}
		failed = err != nil
		pause := time.NewTimer(beat.Pause(p.cfg.Interval*9/10 + rand.N(p.cfg.Interval/5+1)))
		select {
		case <-pause.C:
		case <-p.ctx.Done():
			pause.Stop()
			return
		}
	}
}

func (p *Presence) say() error {
	ctx, cancel := context.WithTimeout(p.ctx, callTimeout)
	defer cancel()
	own := Replica{
		Name: p.cfg.Replica, HeartbeatLimit: p.cfg.HeartbeatLimit, Figures: p.cfg.Figures(), Status: p.cfg.Status(),
	}
	all, err := p.backend.Present(ctx, own, p.limit())
	if err != nil {
		return err
	}
	p.compare(all)
	replicas := make([]string, len(all))
	for i, r := range all {
		if replicas[i] = r.Name; r.Name == own.Name {
			own.AtMS = r.AtMS
		}
	}
	p.cfg.OnAnswer(own.AtMS, all)
	if !slices.Equal(replicas, p.known) {
		p.known = replicas
		p.log.Info("presence.changed", zap.Strings("replicas", replicas))
		p.cfg.OnChange(replicas)
	}
	return nil
}

// degraded begins the detail of a condition that still holds.
const degraded = "degraded: "

// compare records which replicas have other heartbeat limits, and logs when that begins or changes.
// The shortest limit decides when a node's jobs are taken from it, no matter what the other
// replicas are configured with.
func (p *Presence) compare(all []Replica) {
	var others []string
	for _, r := range all {
		if r.HeartbeatLimit > 0 && p.cfg.HeartbeatLimit > 0 && r.HeartbeatLimit != p.cfg.HeartbeatLimit {
			others = append(others, r.HeartbeatLimit.String()+" at "+r.Name)
		}
	}
	detail := ""
	if len(others) > 0 {
		detail = degraded + "heartbeat_limit is " + p.cfg.HeartbeatLimit.String() + " here and " +
			strings.Join(others, ", ") +
			"; the shortest one decides when a silent node loses its jobs"
	}
	if detail != *p.differing.Load() {
		if detail == "" {
			p.log.Info("presence.heartbeat_limits_agree")
		} else {
			p.log.Warn(
				"presence.heartbeat_limits_differ", zap.Duration("heartbeat_limit", p.cfg.HeartbeatLimit),
				zap.Strings("others", others),
			)
		}
		p.differing.Store(&detail)
	}
}

// Ready is a condition of readiness that always holds. Its detail names the replicas that have
// another heartbeat limit.
func (p *Presence) Ready() (ok bool, detail string) { return true, *p.differing.Load() }
