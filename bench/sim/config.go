package sim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/trace"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// The bounds of a simulation: what fits into some gigabytes.
const (
	maxReplicas = 1_000
	maxNodes    = 1_000_000
	maxViews    = 20_000_000 // replicas x nodes
	maxPools    = 1_000
	maxKeys     = 1_000_000
)

// DefaultBatchItems is how many jobs a call of the product's submit script carries at most.
const DefaultBatchItems = 64

// ArrivalKind is how jobs come.
type ArrivalKind string

// The kinds of arrivals.
const (
	ArrivalsTrace   ArrivalKind = "trace"
	ArrivalsPoisson ArrivalKind = "poisson"
	ArrivalsEven    ArrivalKind = "even"
)

func (k ArrivalKind) known() bool {
	return k == ArrivalsTrace || k == ArrivalsPoisson || k == ArrivalsEven
}

// DurationKind is how long jobs take.
type DurationKind string

// The kinds of durations.
const (
	DurationsTrace       DurationKind = "trace"
	DurationsExponential DurationKind = "exponential"
	DurationsFixed       DurationKind = "fixed"
)

func (k DurationKind) known() bool {
	return k == DurationsTrace || k == DurationsExponential || k == DurationsFixed
}

// FullPolicy is what becomes of a job that finds all nodes full.
type FullPolicy string

// The policies.
const (
	// FullDrop: it is refused as overloaded, which is counted.
	FullDrop FullPolicy = "drop"
	// FullWait: it waits in Redis, in the order of arrival there. A completion hands its slot to the first.
	FullWait FullPolicy = "wait"
)

// Config is one simulation. Delays are in microseconds.
type Config struct {
	Seed     uint64 `json:"seed"`
	Replicas int    `json:"replicas"`
	// Slots are the slots of each node.
	Slots []int `json:"-"`
	// Pools divides the nodes into as many pools, by turns; each job names one at random. 0 means no pools.
	Pools int `json:"pools,omitempty"`

	// Rate is arrivals a second over all replicas; each goes to a replica at random.
	Rate     float64     `json:"arrivals_per_second"`
	Arrivals ArrivalKind `json:"arrivals"`
	// Jobs is how many jobs count; WarmUp how many come before.
	Jobs   int `json:"jobs"`
	WarmUp int `json:"warm_up_jobs"`
	// Prefill begins with as many slots taken as the load takes on average, instead of with an idle fleet.
	Prefill bool `json:"prefill"`

	Durations DurationKind `json:"durations"`
	// MeanDuration is the mean, whatever the kind; those of the trace are scaled to it.
	MeanDuration time.Duration `json:"mean_duration_ns"`
	// Overhead is how long a slot stays taken beyond the job's duration.
	Overhead time.Duration `json:"overhead_ns"`
	// Requests is the trace, for arrivals or durations of that kind.
	Requests []trace.Request `json:"-"`

	// Keys is how many affinity keys the jobs have, each job one at random; 0 is none.
	Keys int `json:"affinity_keys,omitempty"`
	// Policy and the four figures are as in selection and dispatch; zero means their defaults.
	Policy     selection.Policy `json:"policy,omitempty"`
	Samples    int              `json:"samples"`
	Candidates int              `json:"candidates"`
	Rounds     int              `json:"rounds"`
	BatchItems int              `json:"batch_items"`
	// NoShares has all replicas look at all nodes alike, instead of each at its share first.
	NoShares bool `json:"no_shares,omitempty"`

	// EventDelay is from a commit to the change in another replica's view.
	EventDelay Quantiles `json:"event_delay"`
	// RoundTrip is that of a submit call beside its time in Redis, and ForwardShare the part of it that is the way
	// there; 0 means one half.
	RoundTrip    Quantiles `json:"script_round_trip"`
	ForwardShare float64   `json:"forward_share,omitempty"`
	// ReplyDelay is from a completion's commit to the submitting replica's view. None means that replicas read
	// their reply streams as internal/dispatch does, a call after the other of RoundTrip.
	ReplyDelay Quantiles `json:"reply_delay,omitempty"`
	// Loss is the probability that an event does not reach a replica, 0 to below 1.
	Loss float64 `json:"loss,omitempty"`

	// CallTime, ItemTime, CompleteTime and HeartbeatTime are what Redis spends on a submit call and on each of its
	// jobs, on a completion and on a heartbeat. It does one after the other.
	CallTime      time.Duration `json:"call_ns"`
	ItemTime      time.Duration `json:"item_ns"`
	CompleteTime  time.Duration `json:"complete_ns"`
	HeartbeatTime time.Duration `json:"heartbeat_ns"`

	// Heartbeat is the nodes' interval, a tenth of it up or down at random; 0 is none.
	Heartbeat time.Duration `json:"heartbeat_interval_ns"`
	// Full empty means FullDrop.
	Full FullPolicy `json:"when_full"`
}

// WithDefaults returns c with zero fields replaced.
func (c Config) WithDefaults() Config {
	c.Candidates = cmp.Or(c.Candidates, dispatch.DefaultCandidates)
	c.Rounds = cmp.Or(c.Rounds, dispatch.DefaultRounds)
	c.BatchItems = cmp.Or(c.BatchItems, DefaultBatchItems)
	c.Full = cmp.Or(c.Full, FullDrop)
	c.Arrivals = cmp.Or(c.Arrivals, ArrivalsPoisson)
	c.Durations = cmp.Or(c.Durations, DurationsExponential)
	if c.EventDelay == nil {
		c.EventDelay = Fixed(0)
	}
	if c.RoundTrip == nil {
		c.RoundTrip = Fixed(0)
	}
	c.ForwardShare = cmp.Or(c.ForwardShare, 0.5)
	return c
}

// Validate names every field that cannot be. c must have its defaults.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.Replicas >= 1 && c.Replicas <= maxReplicas, "replicas is %d, expected 1 to %d", c.Replicas, maxReplicas)
	need(c.ForwardShare >= 0 && c.ForwardShare <= 1, "forward share is %v, expected 0 to 1", c.ForwardShare)
	need(len(c.Slots) >= 1 && len(c.Slots) <= maxNodes, "there are %d nodes, expected 1 to %d", len(c.Slots), maxNodes)
	need(c.Replicas*len(c.Slots) <= maxViews, "%d replicas of %d nodes, expected a product of at most %d", c.Replicas, len(c.Slots), maxViews)
	for i, n := range c.Slots {
		if n < 1 {
			errs = append(errs, fmt.Errorf("node %d has %d slots, expected at least 1", i, n))
			break
		}
	}
	need(c.Pools >= 0 && c.Pools <= min(maxPools, len(c.Slots)), "pools is %d, expected 0 to %d and no more than nodes", c.Pools, maxPools)
	need(c.Keys >= 0 && c.Keys <= maxKeys, "affinity_keys is %d, expected 0 to %d", c.Keys, maxKeys)
	need(positive(c.Rate), "arrivals_per_second is %v, expected more than 0", c.Rate)
	need(c.Arrivals.known(), "arrivals is %q, expected trace, poisson or even", c.Arrivals)
	need(c.Durations.known(), "durations is %q, expected trace, exponential or fixed", c.Durations)
	need(len(c.Requests) > 1 || c.Arrivals != ArrivalsTrace && c.Durations != DurationsTrace, "arrivals or durations of a trace need a trace")
	need(c.Jobs >= 1 && c.WarmUp >= 0, "%d jobs after %d of warm-up, expected at least 1 after at least 0", c.Jobs, c.WarmUp)
	need(c.MeanDuration > 0 && c.Overhead >= 0, "mean duration is %s, overhead %s, expected more than 0 and at least 0", c.MeanDuration, c.Overhead)
	need(c.Samples >= 0 && c.Samples <= selection.MaxSamples, "samples is %d, expected 0 to %d", c.Samples, selection.MaxSamples)
	need(c.Candidates >= 1 && c.Candidates <= cell.MaxCandidates, "candidates is %d, expected 1 to %d", c.Candidates, cell.MaxCandidates)
	need(c.Rounds >= 1 && c.BatchItems >= 1, "%d rounds, %d items a call, expected at least 1", c.Rounds, c.BatchItems)
	need(c.Loss >= 0 && c.Loss < 1, "loss is %v, expected 0 to below 1", c.Loss)
	need(c.Loss == 0 || c.Heartbeat > 0, "events can be lost, but no heartbeat ever shows it")
	need(c.CallTime >= 0 && c.ItemTime >= 0 && c.CompleteTime >= 0 && c.HeartbeatTime >= 0 && c.Heartbeat >= 0, "a time is below 0")
	need(c.Full == FullDrop || c.Full == FullWait, "when_full is %q, expected drop or wait", c.Full)
	errs = append(errs, c.EventDelay.validate("event_delay", 1), c.RoundTrip.validate("script_round_trip", 1), c.ReplyDelay.validate("reply_delay", 0))
	return errors.Join(errs...)
}

// load is the share of all slots that the jobs take on average, were none refused.
func (c *Config) load() float64 {
	slots := 0
	for _, n := range c.Slots {
		slots += n
	}
	return c.Rate * (c.MeanDuration + c.Overhead).Seconds() / float64(slots)
}
