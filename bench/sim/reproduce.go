package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/freeslot/freeslot/bench/trace"
)

// What a reproduction must reach.
const (
	// MaxFactor is by how much the simulated conflict rate may differ from the measured one, up or down.
	MaxFactor = 1.5
	// LeastConflicts is how many conflicts a measured run must have to be held against the simulation.
	LeastConflicts = 500
)

// reproductionRuns is how many seeds a reproduction averages over.
const reproductionRuns = 5

// ErrOff is returned by Check when the simulation is further from the measured run than MaxFactor.
var ErrOff = errors.New("the simulation does not reproduce the measured run")

// ErrFew is returned by Check when the measured run has too few conflicts to say anything.
var ErrFew = errors.New("the measured run has too few conflicts")

// Reproduction is a measured run beside its simulation.
type Reproduction struct {
	About     string  `json:"about,omitempty"`
	Replicas  int     `json:"replicas"`
	Nodes     int     `json:"nodes"`
	Rate      float64 `json:"arrivals_per_second"`
	Conflicts int64   `json:"measured_conflicts"`
	Runs      int     `json:"runs"`
	// Measured and Predicted are conflict rates; PredictedLow and High the least and the most of the runs.
	Measured      float64 `json:"measured_rate"`
	Predicted     float64 `json:"predicted_rate"`
	PredictedLow  float64 `json:"predicted_rate_low"`
	PredictedHigh float64 `json:"predicted_rate_high"`
	// Factor is Predicted / Measured.
	Factor         float64 `json:"factor"`
	MeasuredBusy   float64 `json:"measured_busy_share"`
	PredictedBusy  float64 `json:"predicted_busy_share"`
	MeasuredBatch  float64 `json:"measured_batch_mean"`
	PredictedBatch float64 `json:"predicted_batch_mean"`
	OverheadMS     float64 `json:"slot_overhead_ms"`
	OverCommits    int64   `json:"over_commits"`
	Leaks          int     `json:"leaks"`
}

// Reproduce simulates a measured run. requests is the trace, which a run of another kind does not need.
func Reproduce(m *Measured, requests []trace.Request, seed uint64) (*Reproduction, error) {
	cfg, err := m.config(requests)
	if err != nil {
		return nil, err
	}
	p := &Reproduction{
		About: m.About, Replicas: m.Replicas, Nodes: len(m.Slots), Rate: m.ArrivalsPerSecond, Conflicts: m.Refused,
		Runs: reproductionRuns, Measured: m.Rate(), MeasuredBusy: m.BusyShare, MeasuredBatch: m.BatchMean,
		OverheadMS: cfg.Overhead.Seconds() * 1000, PredictedLow: math.Inf(1),
	}
	var tried, refused int64
	for i := range uint64(reproductionRuns) {
		cfg.Seed = seed + i
		r, err := Run(cfg)
		if err != nil {
			return nil, err
		}
		tried, refused = tried+r.Counts.Tried, refused+r.Counts.Refused
		p.PredictedLow, p.PredictedHigh = min(p.PredictedLow, r.Rate()), max(p.PredictedHigh, r.Rate())
		p.PredictedBusy += r.Busy / reproductionRuns
		p.PredictedBatch += r.BatchMean / reproductionRuns
		p.OverCommits += r.Counts.OverCommits
		p.Leaks += len(r.Leaks)
	}
	p.Predicted = share(refused, tried)
	if p.Measured > 0 {
		p.Factor = p.Predicted / p.Measured
	}
	return p, nil
}

// config is the simulation of a measured run. Waiting for Redis is in the measured delays, so that Redis itself
// takes no time here. How long slots are held beyond the handlers' time follows from the share that was busy,
// by Little's law.
func (m *Measured) config(requests []trace.Request) (Config, error) {
	if err := m.Validate(); err != nil {
		return Config{}, err
	}
	mean := m.Durations.MeanUS
	if m.Durations.Kind == DurationsTrace && len(requests) > 0 {
		mean = m.Durations.PerTokenNS * trace.MeanTokens(requests) / 1000
	}
	slots := 0
	for _, n := range m.Slots {
		slots += n
	}
	held := m.BusyShare * float64(slots) * m.Seconds / float64(m.Assigned) * 1e6
	cfg := Config{
		Replicas: m.Replicas, Slots: m.Slots, Rate: m.ArrivalsPerSecond, Arrivals: m.Arrivals,
		Durations: m.Durations.Kind, MeanDuration: micros(mean), Overhead: micros(max(held-mean, 0)), Requests: requests,
		Samples: m.Samples, Candidates: m.Candidates, Rounds: m.Rounds, BatchItems: m.BatchItems,
		EventDelay: m.EventDelay, RoundTrip: m.RoundTrip, ForwardShare: m.ForwardShare, ReplyDelay: m.ReplyDelay,
		Heartbeat: time.Duration(m.HeartbeatSeconds * float64(time.Second)),
	}
	if len(cfg.ReplyDelay) == 0 {
		cfg.ReplyDelay = nil
	}
	var err error
	cfg.WarmUp, cfg.Jobs, err = m.window(requests)
	return cfg, err
}

// window is how many jobs came before the window, and in it. The trace's bursts are at their times.
func (m *Measured) window(requests []trace.Request) (before, within int, err error) {
	if m.Arrivals != ArrivalsTrace {
		return int(math.Round(m.ArrivalsPerSecond * m.WarmUpSeconds)), int(math.Round(m.ArrivalsPerSecond * m.Seconds)), nil
	}
	replay, err := trace.NewArrivals(requests, m.ArrivalsPerSecond)
	if err != nil {
		return 0, 0, err
	}
	for {
		switch at := replay.Next().At.Seconds(); {
		case at < m.WarmUpSeconds:
			before++
		case at < m.WarmUpSeconds+m.Seconds:
			within++
		default:
			return before, within, nil
		}
	}
}

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// Check returns ErrFew or ErrOff, with figures, unless the simulation is near enough to a run that says enough.
func (p *Reproduction) Check() error {
	switch {
	case p.Conflicts < LeastConflicts:
		return fmt.Errorf("%w: %d, expected at least %d", ErrFew, p.Conflicts, LeastConflicts)
	case !(p.Factor <= MaxFactor && p.Factor >= 1/MaxFactor):
		return fmt.Errorf("%w: predicted %.3g %%, measured %.3g %%, a factor of %.2f, expected 1/%v to %v", ErrOff,
			p.Predicted*100, p.Measured*100, p.Factor, MaxFactor, MaxFactor)
	}
	return nil
}
