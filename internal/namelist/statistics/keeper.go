package statistics

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/logging"
)

const (
	// Every is the time between two readings of a list's reports. A report lasts for a minute.
	Every = 30 * time.Second
	// lookEvery is how often a replica asks for turns, and turnsAtOnce how many it takes at a time.
	lookEvery   = 5 * time.Second
	turnsAtOnce = 200
	callTimeout = 5 * time.Second
)

// Keeper keeps the statistics of lists and chains. Its methods are safe for concurrent use.
type Keeper struct {
	control *namelist.Control
	outage  *logging.Outage
	metrics *metrics

	cancel context.CancelFunc
	loops  sync.WaitGroup
}

// New makes a keeper. reg may be nil. A second keeper on one registerer panics.
func New(control *namelist.Control, log *zap.Logger, reg prometheus.Registerer) *Keeper {
	return &Keeper{
		control: control, cancel: func() {}, metrics: newMetrics(reg),
		outage: logging.NewOutage(log, "lists.statistics_lost", "lists.statistics_back"),
	}
}

// Start starts the work. Call it once.
func (k *Keeper) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.loops.Go(func() { k.loop(ctx) })
	return nil
}

// Stop ends the work. What clients have reported meanwhile waits for another replica.
func (k *Keeper) Stop(ctx context.Context) error {
	k.cancel()
	return ending.Await(ctx, "stop the statistics of lists", k.loops.Wait)
}

func (k *Keeper) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery*3/4 + mathrand.N(lookEvery/2)): // replicas take turns
		}
		if err := k.round(ctx, Every, turnsAtOnce); err == nil {
			k.outage.Over()
		} else if ctx.Err() == nil {
			k.outage.Failed(err)
		}
	}
}

// round adds up the reports of lists that are due, some at a time. Reports of clients that have
// left last for a minute, so none may wait for a later round.
func (k *Keeper) round(ctx context.Context, every time.Duration, atOnce int) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		lists, err := k.control.CountTurns(bounded, every, atOnce)
		cancel()
		for _, list := range lists {
			if err != nil {
				return err
			}
			if namelist.ValidateMark("list", list) == nil { // an operator can write anything into the index
				err = k.Add(ctx, list)
			}
		}
		if err != nil || len(lists) < atOnce {
			return err
		}
	}
}

// Add adds what the clients of a list, or of a chain by its mark, have counted to its history.
func (k *Keeper) Add(ctx context.Context, list string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	read, err := k.control.Counted(ctx, list)
	if err != nil {
		return err
	}
	by, w := sum(&read, decoder(list))
	if len(by)+len(w.Known)+len(w.Forget)+len(w.Left) == 0 {
		return nil
	}
	if len(by) > 0 {
		h := Decode(list, read.History)
		h.Add(read.At, by)
		w.History, w.Drop = h.Changes()
	}
	w.Seq = rand.Text()
	kept, err := k.control.KeepCounted(ctx, list, &read, w, 2*remember)
	if _, isChain := namelist.ChainOf(list); kept && isChain {
		k.metrics.addRules(by)
	} else if kept {
		k.metrics.add(by)
	}
	return err // another replica has counted if it is not kept
}

// Summary sums up the history of a list; see [History.Summary]. at is Redis' time. The last minute
// is incomplete, because reports are added each half minute.
func (k *Keeper) Summary(
	ctx context.Context, list string, since, step time.Duration, application string,
) (out Summary, at time.Time, err error) {
	if _, err := k.control.Head(ctx, list); err != nil {
		return out, at, err
	}
	return k.summary(ctx, list, since, step, application)
}

// ChainSummary sums up the history of a chain, with a row for each rule. at is Redis' time. Errors:
// not_found.
func (k *Keeper) ChainSummary(
	ctx context.Context, chain string, since, step time.Duration,
) (out Summary, at time.Time, err error) {
	if _, err := k.control.Chain(ctx, chain); err != nil {
		return out, at, err
	}
	return k.summary(ctx, namelist.ChainMark(chain), since, step, "")
}

func (k *Keeper) summary(
	ctx context.Context, mark string, since, step time.Duration, row string,
) (out Summary, at time.Time, err error) {
	read, err := k.control.Counted(ctx, mark)
	if err != nil {
		return out, at, err
	}
	return Decode(mark, read.History).Summary(read.At.Add(-since), step, row), read.At, nil
}

// metrics counts what this replica has added to the history of any list or chain.
type metrics struct {
	decisions, shadows *prometheus.CounterVec

	lookups        *prometheus.CounterVec // by result
	falsePositives prometheus.Counter
	calls, seconds prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "freeslot", Subsystem: "lists", Name: name, Help: help}
	}
	const own = " Clients report them, and each report is counted by one replica."
	m := &metrics{
		lookups: prometheus.NewCounterVec(
			opts("lookups_total", "Lookups of ids by result: hit, miss or unknown."+own), []string{"result"},
		),
		falsePositives: prometheus.NewCounter(
			opts("false_positives_total", "Lookups that a filter let through, of ids that the list does not have."+own),
		),
		calls: prometheus.NewCounter(
			opts("remote_calls_total", "Calls of clients for ids that their memory could not decide."+own),
		),
		seconds: prometheus.NewCounter(opts("remote_seconds_total", "Time of these calls."+own)),
	}
	m.decisions = prometheus.NewCounterVec(
		opts("chain_decisions_total", "Decisions of all chains by outcome: allow, deny, variant or unknown."+own),
		[]string{"outcome"},
	)
	m.shadows = prometheus.NewCounterVec(
		opts(
			"chain_shadow_total", "Decisions that were compared with a shadow: same, different, or undecided by memory."+own,
		),
		[]string{"result"},
	)
	for _, result := range []string{"hit", "miss", "unknown"} {
		m.lookups.WithLabelValues(result)
	}
	m.addRules(map[string]count.Counts{"": {}})
	if reg != nil {
		reg.MustRegister(m.decisions, m.shadows, m.lookups, m.falsePositives, m.calls, m.seconds)
	}
	return m
}

func (m *metrics) add(by map[string]count.Counts) {
	for _, c := range by {
		hits, misses, unknown := c.Results()
		m.lookups.WithLabelValues("hit").Add(float64(hits))
		m.lookups.WithLabelValues("miss").Add(float64(misses))
		m.lookups.WithLabelValues("unknown").Add(float64(unknown))
		m.falsePositives.Add(float64(c[count.FalsePositives]))
		m.calls.Add(float64(c.Calls()))
		m.seconds.Add(float64(c[count.RemoteMicros]) / 1e6)
	}
}

func (m *metrics) addRules(by map[string]count.Counts) {
	for _, c := range by {
		for cell, outcome := range count.OutcomeNames {
			m.decisions.WithLabelValues(outcome).Add(float64(c[cell]))
		}
		for i, result := range count.ShadowNames {
			m.shadows.WithLabelValues(result).Add(float64(c[count.ShadowSame+i]))
		}
	}
}
