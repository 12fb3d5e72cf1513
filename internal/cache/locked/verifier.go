package locked

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

// DefaultVerifyInterval is how often a Verifier compares unless told otherwise.
const DefaultVerifyInterval = time.Minute

const (
	// lookAgain is how often a node that differs is read again, and recheckAfter the
	// pause before each: the two pictures are not read at one instant, and a change
	// reaches the second after the first.
	lookAgain    = 3
	recheckAfter = 20 * time.Millisecond
	// logged bounds the differences of one comparison that are logged one by one.
	logged = 10
)

// Picture is what a Verifier compares; *cache.Cache and *State are such.
type Picture interface {
	States() []cell.NodeState
	State(id string) (cell.NodeState, bool)
}

// Verifier compares two pictures of the fleet again and again, and says in the log
// and in metrics where they differ. It corrects nothing.
type Verifier struct {
	a, b     Picture
	interval time.Duration
	log      *zap.Logger

	comparisons prometheus.Counter
	last        atomic.Int64 // differences that the last comparison found

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	done        chan struct{}
}

// NewVerifier compares b with a. interval 0 means DefaultVerifyInterval; reg may be nil.
func NewVerifier(a, b Picture, interval time.Duration, log *zap.Logger, reg prometheus.Registerer) *Verifier {
	if interval <= 0 {
		interval = DefaultVerifyInterval
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := &Verifier{a: a, b: b, interval: interval, log: log, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	v.comparisons = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freeslot_locked_comparisons_total", Help: "Comparisons of the lock-based picture of the fleet with the cache.",
	})
	if reg != nil {
		reg.MustRegister(v.comparisons, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "freeslot_locked_differences", Help: "Differences that the last comparison found.",
		}, func() float64 { return float64(v.last.Load()) }))
	}
	return v
}

// Start compares for the first time soon, and then at every interval until Stop.
func (v *Verifier) Start(context.Context) error {
	v.start.Do(func() { go v.loop() })
	return nil
}

// Stop ends the loop and waits for it. It tolerates a Verifier that was never
// started, and being called twice.
func (v *Verifier) Stop(ctx context.Context) error {
	v.start.Do(func() { close(v.done) }) // what is stopped before its Start never starts
	v.stop.Do(v.cancel)
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop verifier: %w", ctx.Err())
	}
}

func (v *Verifier) loop() {
	defer close(v.done)
	// Jitter keeps replicas that were started together from comparing together.
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

// Verify compares once and returns the differences that stood when their nodes were
// read again. The slots in use are left out: the answers of reservations correct them
// in the picture that is chosen from alone, until the node's next heartbeat. It returns
// nil when ctx ends on the way.
func (v *Verifier) Verify(ctx context.Context) []Difference {
	found := lasting(Compare(v.a.States(), v.b.States()))
	for range lookAgain {
		if len(found) == 0 {
			break
		}
		select {
		case <-time.After(recheckAfter):
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

// lasting leaves out what the two pictures learn from different sources.
func lasting(all []Difference) []Difference {
	var out []Difference
	for _, d := range all {
		if d.Field != fieldUsed {
			out = append(out, d)
		}
	}
	return out
}

func (v *Verifier) report(found []Difference) {
	for _, d := range found[:min(len(found), logged)] {
		v.log.Warn("locked.differs", zap.String("node", d.Node), zap.String("field", d.Field), zap.String("cache", d.A), zap.String("locked", d.B))
	}
	if len(found) > logged {
		v.log.Warn("locked.differs_more", zap.Int("differences", len(found)))
	}
}
