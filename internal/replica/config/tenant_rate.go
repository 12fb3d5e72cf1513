package config

import "math"

// The bounds of submit_rate, in jobs a second, and of submit_burst.
const (
	minRate  = 0.001
	maxRate  = 1_000_000
	maxBurst = 10_000_000
)

// Rate returns the tenant's submit rate and burst; false if it has none.
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
	// Negated, so that it refuses NaN too.
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
