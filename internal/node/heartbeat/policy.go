package heartbeat

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Decision is what to send now. The zero value is None.
type Decision uint8

// The decisions, by the seed's names.
const (
	// None sends nothing.
	None Decision = iota
	// HeartbeatOnly moves the time of the last heartbeat and nothing else.
	HeartbeatOnly
	// MetadataUpdate brings the metrics too, and is a heartbeat.
	MetadataUpdate
)

// String is the decision's name in logs and on the wire.
func (d Decision) String() string {
	switch d {
	case HeartbeatOnly:
		return "HEARTBEAT_ONLY"
	case MetadataUpdate:
		return "METADATA_UPDATE"
	default:
		return "NO_UPDATE"
	}
}

// ThresholdKind is how the change of a metric is measured.
type ThresholdKind string

// The kinds.
const (
	// Absolute: the difference, in the metric's unit, reaches the value.
	Absolute ThresholdKind = "absolute"
	// Percent: the difference, in percent of what was told, reaches the value. What was
	// told as 0 and is not any more has changed by more than any percentage.
	Percent ThresholdKind = "percent"
	// Any: every change counts, also of texts and booleans. The value is not used.
	Any ThresholdKind = "any"
)

// Kinds are all of them.
func Kinds() []string { return []string{string(Absolute), string(Percent), string(Any)} }

// Threshold says which changes of one metric are significant. A metric that appears,
// disappears, becomes or ceases to be a number (NaN is none) has changed significantly
// whatever the kind; one that stays equal never has.
type Threshold struct {
	// Kind must be set.
	Kind ThresholdKind
	// Value must not be negative; with 0 every change counts.
	Value float64
}

// Validate returns an error that continues a sentence which begins with the threshold's name.
func (t Threshold) Validate() error {
	if !slices.Contains(Kinds(), string(t.Kind)) {
		return fmt.Errorf("has kind %q, expected absolute, percent or any", string(t.Kind))
	}
	if math.IsNaN(t.Value) || math.IsInf(t.Value, 0) || t.Value < 0 {
		return fmt.Errorf("is %v, expected 0 or more", t.Value)
	}
	return nil
}

// Metrics are the current figures by name, such as "memory.usage": numbers (float64, int64
// or int), booleans and texts. Only those with a threshold are looked at.
type Metrics map[string]any

// Policy is how often what is sent.
type Policy struct {
	// HeartbeatInterval is the longest time between two heartbeats of either kind.
	HeartbeatInterval time.Duration
	// MetadataInterval is the longest time between two metadata updates. 0 means
	// HeartbeatInterval: every heartbeat brings the metrics.
	MetadataInterval time.Duration
	// MetadataGap is the shortest time between two metadata updates that only changes ask
	// for: a metric that swings may not do so at the store's cost. 0 is no bound.
	MetadataGap time.Duration
	// Thresholds are by metric. A metric without one changes nothing.
	Thresholds map[string]Threshold
	// DisableImmediate makes a significant change wait for the next heartbeat, which then
	// brings the metrics.
	DisableImmediate bool
	// Jitter shortens an interval, so that a fleet that was started at once does not beat
	// at once. It must return more than 0 and at most its argument. nil leaves intervals as they are.
	Jitter func(time.Duration) time.Duration
}

// Validate names everything that New cannot work with.
func (p Policy) Validate() error {
	var bad []error
	if p.HeartbeatInterval <= 0 {
		bad = append(bad, fmt.Errorf("heartbeat_interval is %s, expected more than 0", p.HeartbeatInterval))
	}
	if p.MetadataInterval < 0 {
		bad = append(bad, fmt.Errorf("metadata_interval is %s, expected 0 or more", p.MetadataInterval))
	}
	if p.MetadataGap < 0 {
		bad = append(bad, fmt.Errorf("metadata_gap is %s, expected 0 or more", p.MetadataGap))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Thresholds)) {
		if err := p.Thresholds[name].Validate(); err != nil {
			bad = append(bad, fmt.Errorf("change_thresholds.%s %w", name, err))
		}
	}
	return errors.Join(bad...)
}
