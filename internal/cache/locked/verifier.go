package locked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

// DefaultVerifyInterval is the default interval between two comparisons of a Verifier.
const DefaultVerifyInterval = time.Minute

const (
	// rereads is how often a node that differs is read again, and rereadAfter the pause before each
	// time: the two copies are not read at one instant, and a change reaches one of them first.
	rereads     = 3
	rereadAfter = 20 * time.Millisecond
	// logged bounds the differences of one comparison that are logged one by one.
	logged = 10
)

// Picture is what a Verifier compares. *cache.Cache and *State implement it.
type Picture interface {
	States() []cell.NodeState
	State(id string) (cell.NodeState, bool)
}

// Verifier compares two copies of the fleet at every interval. It reports differences in the log
// and in metrics, and corrects nothing.
type Verifier struct {
	a, b     Picture
	interval time.Duration
	log      *zap.Logger

	comparisons prometheus.Counter
	last        atomic.Int64 // differences found by the last comparison

	start  sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// NewVerifier makes a verifier that compares b with a. interval 0 means DefaultVerifyInterval. reg
// may be nil.
func NewVerifier(a, b Picture, interval time.Duration, log *zap.Logger, reg prometheus.Registerer) *Verifier {
	if interval <= 0 {
		interval = DefaultVerifyInterval
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &Verifier{a: a, b: b, interval: interval, log: log, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	v.comparisons = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freeslot_locked_comparisons_total", Help: "Comparisons of the lock-based copy of the fleet with the cache.",
	})
	if reg != nil {
		reg.MustRegister(v.comparisons, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freeslot_locked_differences", Help: "Differences that the last comparison found.",
		}, func() float64 { return float64(v.last.Load()) }))
	}
	return v
}

// Start starts the comparisons: the first comes soon, the others at every interval until Stop.
func (v *Verifier) Start(context.Context) error {
	v.start.Do(func() { go v.loop() })
	return nil
}

// Stop ends the loop and waits for it. It may be called twice, and on a Verifier that was never
// started.
func (v *Verifier) Stop(ctx context.Context) error {
	v.start.Do(func() { close(v.done) }) // a Verifier that is stopped before its Start never starts
	v.cancel()
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop verifier: %w", ctx.Err())
	}
}

func (v *Verifier) loop() {
	defer close(v.done)
	// The time varies, so that replicas that were started together do not compare together.
	timer := time.NewTimer(rand.N(v.interval/10 + 1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			v.Verify(v.ctx)
			timer.Reset(v.interval*3/4 + rand.N(v.interval/2+1))
		case <-v.ctx.Done():
			return
		}
	}
}

// Verify compares once and returns the differences that remain after their nodes were read again.
// It ignores the slots in use: until the node's next heartbeat, answers to reservations correct
// them only in the copy that jobs are chosen from. It returns nil if ctx ends meanwhile.
func (v *Verifier) Verify(ctx context.Context) []Difference {
	found := lasting(Compare(v.a.States(), v.b.States()))
	for range rereads {
		if len(found) == 0 {
			break
		}
		select {
		case <-time.After(rereadAfter):
		case <-ctx.Done():
			return nil
		}
		found = v.reread(found)
	}
	v.comparisons.Inc()
	v.last.Store(int64(len(found)))
	v.report(found)
	return found
}

// reread compares the nodes of these differences again.
func (v *Verifier) reread(found []Difference) []Difference {
	var out []Difference
	for i, d := range found {
		if i > 0 && d.Node == found[i-1].Node {
			continue
		}
		out = append(out, lasting(compare(d.Node, read(v.a, d.Node), read(v.b, d.Node)))...)
	}
	return out
}

func read(p Picture, id string) *cell.NodeState {
	if s, ok := p.State(id); ok {
		return &s
	}
	return nil
}

// lasting leaves out the slots in use, which the two copies learn from different sources.
func lasting(all []Difference) []Difference {
	return slices.DeleteFunc(all, func(d Difference) bool { return d.Field == fieldUsed })
}

func (v *Verifier) report(found []Difference) {
	for _, d := range found[:min(len(found), logged)] {
		v.log.Warn(
			"locked.differs", zap.String("node", d.Node), zap.String("field", d.Field), zap.String("cache", d.A),
			zap.String("locked", d.B),
		)
	}
	if len(found) > logged {
		v.log.Warn("locked.differs_more", zap.Int("differences", len(found)))
	}
}
