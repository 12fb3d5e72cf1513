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

// The decisions, by the design's names.
const (
	// None sends nothing.
	None Decision = iota
	// HeartbeatOnly moves the time of the last heartbeat and nothing else.
	HeartbeatOnly
	// MetricsUpdate brings the metrics that have changed, and is a heartbeat. It occurs only with
	// Policy.SplitMetrics.
	MetricsUpdate
	// MetadataUpdate brings the metrics too, and is a heartbeat.
	MetadataUpdate
)

// String returns the decision's name in logs and on the wire.
func (d Decision) String() string {
	switch d {
	case HeartbeatOnly:
		return "HEARTBEAT_ONLY"
	case MetricsUpdate:
		return "METRICS_UPDATE"
	case MetadataUpdate:
		return "METADATA_UPDATE"
	default:
		return "NO_UPDATE"
	}
}

// ThresholdKind tells how the change of a metric is measured.
type ThresholdKind string

// The kinds.
const (
	// Absolute: the difference, in the metric's unit, reaches the value.
	Absolute ThresholdKind = "absolute"
	// Percent: the difference, in percent of the value that was sent, reaches the value. A change
	// from 0 is larger than any percentage.
	Percent ThresholdKind = "percent"
	// Any: every change counts, also of texts and booleans. Value is not used.
	Any ThresholdKind = "any"
)

// Kinds lists all kinds.
func Kinds() []string { return []string{string(Absolute), string(Percent), string(Any)} }

// Threshold decides which changes of one metric are significant. For all kinds it is significant if
// a metric appears, disappears, becomes or ceases to be a number (NaN is none). A metric that stays
// equal never changes significantly.
type Threshold struct {
	// Kind must be set.
	Kind ThresholdKind
	// Value must not be negative; with 0 every change counts.
	Value float64
}

// Validate returns an error that continues a sentence that begins with the threshold's name.
func (t Threshold) Validate() error {
	if !slices.Contains(Kinds(), string(t.Kind)) {
		return fmt.Errorf("has kind %q, expected absolute, percent or any", string(t.Kind))
	}
	if math.IsNaN(t.Value) || math.IsInf(t.Value, 0) || t.Value < 0 {
		return fmt.Errorf("is %v, expected 0 or more", t.Value)
	}
	return nil
}

// Metrics are the current figures by name, such as "memory.usage": numbers (float64, int64 or int),
// booleans and texts. Only metrics with a threshold matter.
type Metrics map[string]any

// Policy decides what is sent how often.
type Policy struct {
	// HeartbeatInterval is the longest time between two heartbeats of either kind.
	HeartbeatInterval time.Duration
	// MetadataInterval is the longest time between two metadata updates. 0 means
	// HeartbeatInterval: every heartbeat brings the metrics.
	MetadataInterval time.Duration
	// MetadataGap is the shortest time between two metadata updates that only changes cause. It
	// protects the store from a metric that swings. 0 is no bound.
	MetadataGap time.Duration
	// Thresholds holds the thresholds by metric. A change of a metric without one is not
	// significant.
	Thresholds map[string]Threshold
	// DisableImmediate makes a significant change wait for the next heartbeat, which then brings
	// the metrics.
	DisableImmediate bool
	// SplitMetrics makes a significant change a MetricsUpdate. Then MetadataUpdate, which brings
	// everything, comes by its interval alone.
	SplitMetrics bool
	// Jitter shortens an interval, so that senders that start together do not send together. It
	// must return more than 0 and at most its argument. nil leaves intervals as they are.
	Jitter func(time.Duration) time.Duration
}

// Validate names everything that New cannot use.
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
