package heartbeat

import (
	"maps"
	"math"
	"time"
)

// Never is the result of Next while a decision is being sent: its end comes first.
const Never time.Duration = math.MaxInt64

// Decider applies a policy to one sender. It is not safe for concurrent use.
type Decider struct {
	policy Policy

	// lastBeat, lastMetrics and lastMetadata are the times at which the last acknowledged ones
	// began. One that brings more counts for all it includes. beatAfter and metadataAfter are the
	// intervals since then, shortened by the jitter.
	lastBeat, lastMetrics    time.Time
	lastMetadata             time.Time
	beatAfter, metadataAfter time.Duration
	// sent holds the metrics with thresholds in the last acknowledged decision that brought any.
	sent Metrics
	// owed is due at any time: it was never sent, has failed, or the store has forgotten it.
	owed Decision

	// pending has been under way since begun, with the metrics in sending.
	pending Decision
	begun   time.Time
	sending Metrics
}

// New makes the decider of a valid policy. Its first decision is MetadataUpdate, at any time. It
// keeps its own copy of the thresholds.
func New(p Policy) *Decider {
	if p.MetadataInterval == 0 {
		p.MetadataInterval = p.HeartbeatInterval
	}
	if p.Jitter == nil {
		p.Jitter = func(d time.Duration) time.Duration { return d }
	}
	p.Thresholds = maps.Clone(p.Thresholds)
	return &Decider{policy: p, owed: MetadataUpdate}
}

// Decide returns what is due now. It changes nothing.
func (d *Decider) Decide(now time.Time, metrics Metrics) Decision {
	switch {
	case d.pending != None:
		return None
	case d.metadataDue(now):
		return MetadataUpdate
	case (!d.policy.DisableImmediate || d.beatDue(now)) && d.changeDue(now, metrics) || d.owed == MetricsUpdate:
		return d.onChange()
	case d.beatDue(now):
		return HeartbeatOnly
	default:
		return None
	}
}

// Demand does what Decide does, for a heartbeat that must be sent in any case: it returns
// HeartbeatOnly unless more is due. It returns None only while one is under way.
func (d *Decider) Demand(now time.Time, metrics Metrics) Decision {
	switch {
	case d.pending != None:
		return None
	case d.metadataDue(now):
		return MetadataUpdate
	case d.changeDue(now, metrics) || d.owed == MetricsUpdate:
		return d.onChange()
	default:
		return HeartbeatOnly
	}
}

// Next returns how long Decide will return None if the metrics do not change: 0 if something is
// due, Never while one is under way.
func (d *Decider) Next(now time.Time, metrics Metrics) time.Duration {
	if d.pending != None {
		return Never
	}
	if d.owed != None {
		return 0
	}
	next := min(d.beatAfter-now.Sub(d.lastBeat), d.metadataAfter-now.Sub(d.lastMetadata))
	if !d.policy.DisableImmediate && d.changed(metrics) {
		next = min(next, d.policy.MetadataGap-now.Sub(d.lastMetrics))
	}
	return max(next, 0)
}

// Begin records that the decision is being sent. It panics while another one is under way, because
// then there was no decision. The metrics may change afterwards.
func (d *Decider) Begin(decision Decision, now time.Time, metrics Metrics) {
	if d.pending != None {
		panic("heartbeat: Begin while one is under way")
	}
	d.pending, d.begun, d.sending = decision, now, nil
	if decision >= MetricsUpdate {
		d.sending = make(Metrics, len(d.policy.Thresholds))
		for name := range d.policy.Thresholds {
			if value, ok := metrics[name]; ok {
				d.sending[name] = value
			}
		}
	}
}

// Succeeded records that the pending one has been acknowledged. Intervals count from its beginning,
// which is before the store took it in.
func (d *Decider) Succeeded() {
	if d.pending == None {
		return
	}
	d.lastBeat, d.beatAfter = d.begun, d.policy.Jitter(d.policy.HeartbeatInterval)
	if d.pending >= MetricsUpdate {
		d.lastMetrics, d.sent = d.begun, d.sending
	}
	if d.pending == MetadataUpdate {
		d.lastMetadata, d.metadataAfter = d.begun, d.policy.Jitter(d.policy.MetadataInterval)
	}
	if d.pending >= d.owed {
		d.owed = None
	}
	d.pending = None
}

// Failed records that the pending one has not been acknowledged: it is due again.
func (d *Decider) Failed() {
	d.owed = max(d.owed, d.pending)
	d.pending = None
}

// Forget records that the store may have lost the metrics: a metadata update is due, also after one
// that is under way.
func (d *Decider) Forget() {
	d.owed = MetadataUpdate
	if d.pending >= MetricsUpdate {
		d.pending = HeartbeatOnly // it began before the loss, so it does not make up for it
	}
}

func (d *Decider) beatDue(now time.Time) bool {
	return d.owed != None || now.Sub(d.lastBeat) >= d.beatAfter
}

func (d *Decider) metadataDue(now time.Time) bool {
	return d.owed == MetadataUpdate || now.Sub(d.lastMetadata) >= d.metadataAfter
}

// onChange returns the decision that a significant change of metrics causes.
func (d *Decider) onChange() Decision {
	if d.policy.SplitMetrics {
		return MetricsUpdate
	}
	return MetadataUpdate
}

// changeDue reports whether there is a significant change and the gap since the last update is
// over.
func (d *Decider) changeDue(now time.Time, metrics Metrics) bool {
	return now.Sub(d.lastMetrics) >= d.policy.MetadataGap && d.changed(metrics)
}

// changed reports whether some metric has changed significantly since it was sent.
func (d *Decider) changed(metrics Metrics) bool {
	for name, threshold := range d.policy.Thresholds {
		before, had := d.sent[name]
		after, has := metrics[name]
		if had != has || had && threshold.exceeded(before, after) {
			return true
		}
	}
	return false
}
