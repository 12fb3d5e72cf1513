package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
)

// Measured is a run of real replicas, as the load tool that made it writes it and Reproduce reads it. Times
// are in microseconds. What the simulation is to predict (Refused and what follows it) is of the same window
// as what it is told. Counts are over all replicas, between the ends of the window.
type Measured struct {
	// About says in words what was run.
	About string `json:"about,omitempty"`

	Replicas int `json:"replicas"`
	// Slots are the slots of each node.
	Slots []int `json:"slots_of_nodes"`
	// Seconds is the length of the window.
	Seconds float64 `json:"seconds"`
	// WarmUpSeconds is how long the same load had run before the window. That it may have grown at first is not simulated.
	WarmUpSeconds float64 `json:"warm_up_seconds"`

	// Arrivals is how jobs came: "trace" (trace.NewArrivals from the trace's first request on, at the start of
	// the warm-up), "poisson", or "even" (a job every 1/rate).
	Arrivals ArrivalKind `json:"arrivals"`
	// ArrivalsPerSecond is the rate, over all replicas.
	ArrivalsPerSecond float64 `json:"arrivals_per_second"`
	// Durations is how long the handlers took.
	Durations MeasuredDurations `json:"durations"`
	// Samples is the d of the choice; 0 is selection.DefaultSamples.
	Samples int `json:"samples,omitempty"`
	// Candidates and Rounds are the dispatcher's; 0 is its default.
	Candidates int `json:"candidates,omitempty"`
	Rounds     int `json:"rounds,omitempty"`
	// BatchItems is the most jobs that one call of the submit script could carry; 0 is the product's 64.
	BatchItems int `json:"batch_items,omitempty"`
	// HeartbeatSeconds is the nodes' heartbeat interval; 0 means that they sent none.
	HeartbeatSeconds float64 `json:"heartbeat_seconds"`

	// EventDelay is how old a change that made a node full or free is when the choices of a replica know of it,
	// under this load: the share at a delay is that of the choices made at this age of a change which knew of it.
	// That is less than the time until the cache has the change where what delays it, a processor that is busy with
	// others, delays the choices too. Quantiles as below.
	EventDelay Quantiles `json:"event_delay"`
	// RoundTrip is the submit script's call as the replica sees it: from the moment at which the call's batch is
	// closed to its jobs' answers, under this load. Waiting for the call before is not part of it.
	RoundTrip Quantiles `json:"script_round_trip"`
	// ForwardShare is the part of a call's time until the script ran, 0 to 1: a replica that waits for a processor
	// sees its answers late, which delays nobody's choice. 0 means one half.
	ForwardShare float64 `json:"forward_share,omitempty"`
	// ReplyDelay is from the commit of a completion to the submitting replica's handling of the reply. When it was
	// not measured (no points) reply streams are read as the product reads them, at the pace of RoundTrip.
	ReplyDelay Quantiles `json:"reply_delay,omitempty"`
	// BatchMean is the mean number of jobs in a call of the submit script.
	BatchMean float64 `json:"batch_mean"`

	// Calls counts jobs offered in calls of the submit script: once for each round of each job.
	Calls int64 `json:"calls"`
	// Tried counts the nodes at which the script looked: every refusal (reason full) and every assignment.
	Tried int64 `json:"tried"`
	// Refused counts the refusals with reason full: the conflicts. The conflict rate is Refused / Tried.
	Refused int64 `json:"refused"`
	// FirstRefused counts the calls whose first candidate was refused.
	FirstRefused int64 `json:"first_refused,omitempty"`
	Assigned     int64 `json:"assigned"`
	// Overloaded counts jobs that were refused for good because all nodes seemed full.
	Overloaded int64 `json:"overloaded"`
	// OverCommits counts jobs that handlers ran beyond a node's slots.
	OverCommits int64 `json:"over_commits"`
	// BusyShare is the mean share of all slots that were taken in Redis during the window, 0 to 1.
	BusyShare float64 `json:"busy_share"`
}

// MeasuredDurations is how long handlers took.
type MeasuredDurations struct {
	// Kind is "trace" (PerTokenNS for each generated token, see trace.Durations), "exponential", or "fixed".
	Kind       DurationKind `json:"kind"`
	PerTokenNS float64      `json:"per_token_ns,omitempty"`
	// MeanUS is the mean that was asked for.
	MeanUS float64 `json:"mean_us"`
}

// Quantiles are points of a distribution, in microseconds, in the order of their shares. Between two points
// the simulation goes straight, so give at least 0, 0.5, 0.9, 0.99, 0.999 and 1.
type Quantiles []Quantile

// Quantile says that a share At (0 to 1) of the values are at most US microseconds.
type Quantile struct {
	At float64 `json:"at"`
	US float64 `json:"us"`
}

// ReadMeasured reads the JSON of a measured run and names everything that is wrong with it.
func ReadMeasured(data []byte) (*Measured, error) {
	m := new(Measured)
	if err := measure.Decode("measured run", data, m); err != nil {
		return nil, err
	}
	return m, m.Validate()
}

// Validate names every field that cannot be.
func (m *Measured) Validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(m.Replicas >= 1 && m.Replicas <= maxReplicas, "replicas is %d, expected 1 to %d", m.Replicas, maxReplicas)
	need(len(m.Slots) >= 1 && len(m.Slots) <= maxNodes, "slots_of_nodes has %d nodes, expected 1 to %d", len(m.Slots), maxNodes)
	need(len(m.Slots) == 0 || slices.Min(m.Slots) >= 1, "slots_of_nodes has a node without slots")
	need(positive(m.Seconds), "seconds is %v, expected more than 0", m.Seconds)
	need(m.WarmUpSeconds >= 0, "warm_up_seconds is %v, expected 0 or more", m.WarmUpSeconds)
	need(m.Arrivals.known(), "arrivals is %q, expected trace, poisson or even", m.Arrivals)
	need(positive(m.ArrivalsPerSecond), "arrivals_per_second is %v, expected more than 0", m.ArrivalsPerSecond)
	need(m.Durations.Kind.known(), "durations.kind is %q, expected trace, exponential or fixed", m.Durations.Kind)
	need(positive(m.Durations.MeanUS), "durations.mean_us is %v, expected more than 0", m.Durations.MeanUS)
	need(m.Durations.Kind != DurationsTrace || positive(m.Durations.PerTokenNS), "durations.per_token_ns is %v, expected more than 0", m.Durations.PerTokenNS)
	need(m.HeartbeatSeconds >= 0, "heartbeat_seconds is %v, expected 0 or more", m.HeartbeatSeconds)
	need(m.Tried > 0 && m.Refused >= 0 && m.Refused <= m.Tried, "%d refused of %d tried", m.Refused, m.Tried)
	need(m.Assigned > 0, "assigned is %d, expected more than 0", m.Assigned)
	need(m.ForwardShare >= 0 && m.ForwardShare <= 1, "forward_share is %v, expected 0 to 1", m.ForwardShare)
	need(m.BusyShare > 0 && m.BusyShare <= 1, "busy_share is %v, expected more than 0 and at most 1", m.BusyShare)
	errs = append(errs, m.EventDelay.validate("event_delay", 2), m.RoundTrip.validate("script_round_trip", 2), m.ReplyDelay.validate("reply_delay", 0))
	return errors.Join(errs...)
}

func positive(f float64) bool { return f > 0 && !math.IsInf(f, 0) }

func (q Quantiles) validate(name string, least int) error {
	if len(q) < least {
		return fmt.Errorf("%s has %d points, expected at least %d", name, len(q), least)
	}
	for i, p := range q {
		if !(p.At >= 0 && p.At <= 1) || !(p.US >= 0) || math.IsInf(p.US, 0) {
			return fmt.Errorf("%s: {at %v, us %v} is no quantile", name, p.At, p.US)
		}
		if i > 0 && (p.At <= q[i-1].At || p.US < q[i-1].US) {
			return fmt.Errorf("%s: {at %v, us %v} does not follow {at %v, us %v}", name, p.At, p.US, q[i-1].At, q[i-1].US)
		}
	}
	return nil
}

// Rate is the measured conflict rate.
func (m *Measured) Rate() float64 { return float64(m.Refused) / float64(m.Tried) }
