package config

import (
	"math"
	"time"
)

const (
	maxReplicas = 16
	minRate     = 0.001
	maxRate     = 1_000_000
	maxBurst    = 10_000_000
)

func (r *Replica) validateAcknowledge(p *Problems) {
	p.OneOf("acknowledge", r.Acknowledge, AcknowledgeLocal, AcknowledgeReplicated)
	p.Between("acknowledge_replicas", r.AcknowledgeReplicas, 1, maxReplicas)
	// No longer than a submit is tried for.
	p.DurationBetween("acknowledge_timeout", r.AcknowledgeTimeout, 10*time.Millisecond, 3*time.Second)
}

// Rate is the tenant's submit rate and burst; false when it has none.
func (t Tenant) Rate() (perSecond float64, burst int, ok bool) {
	if t.SubmitRate == 0 {
		return 0, 0, false
	}
	if burst = t.SubmitBurst; burst == 0 {
		burst = max(int(math.Ceil(t.SubmitRate)), 1)
	}
	return t.SubmitRate, burst, true
}

func (t Tenant) validateRate(at string, p *Problems) {
	rate, burst := join(at, "submit_rate"), join(at, "submit_burst")
	// So that NaN is refused too.
	if usable := t.SubmitRate >= minRate && t.SubmitRate <= maxRate; t.SubmitRate != 0 && !usable && !p.Has(rate) {
		p.Addf(rate, "is %v, expected 0 for no limit, or %v to %d jobs a second", t.SubmitRate, minRate, maxRate)
	}
	switch {
	case t.SubmitBurst == 0 || p.Has(burst):
	case t.SubmitRate == 0 && !p.Has(rate):
		p.Addf(burst, "is set without submit_rate, expected both or neither")
	default:
		p.Between(burst, t.SubmitBurst, 1, maxBurst)
	}
}
