package collector

import (
	"context"
	"strconv"
	"time"
)

// Metrics are the figures of one collection by field. A field name is a lower-case letter followed
// by lower-case letters, digits and underscores, at most 64 bytes in all. Values are float64,
// int64, int, bool or string. Units are part of the name, except for shares, which are between 0
// and 1.
type Metrics map[string]any

// Cost tells how much a collection burdens the machine. It decides a collector's interval and time
// limit if they are not configured. The zero value is CostLow.
type Cost uint8

// The costs.
const (
	// CostLow: some reads of /proc or of memory.
	CostLow Cost = iota
	// CostMedium: it asks a driver, a file system or a local service.
	CostMedium
	// CostHigh: it starts a process, or asks something over the network.
	CostHigh
)

// String returns "LOW", "MEDIUM" or "HIGH".
func (c Cost) String() string {
	switch c {
	case CostLow:
		return "LOW"
	case CostMedium:
		return "MEDIUM"
	case CostHigh:
		return "HIGH"
	default:
		return "Cost(" + strconv.Itoa(int(c)) + ")"
	}
}

// DefaultInterval returns 15 s, 60 s or 5 min.
func (c Cost) DefaultInterval() time.Duration {
	switch c {
	case CostLow:
		return 15 * time.Second
	case CostMedium:
		return time.Minute
	default:
		return 5 * time.Minute
	}
}

// DefaultTimeout returns 2 s, 5 s or 30 s.
func (c Cost) DefaultTimeout() time.Duration {
	switch c {
	case CostLow:
		return 2 * time.Second
	case CostMedium:
		return 5 * time.Second
	default:
		return 30 * time.Second
	}
}

// Collector collects the figures of one type. A [Runner] calls its methods from one goroutine at a
// time. Type and Cost always return the same.
type Collector interface {
	// Type returns the name under which the figures are published. It obeys freeslot.ValidateName.
	Type() string
	// Available reports whether the machine offers these figures. The Runner calls it before the
	// first collection and, after a false, again now and then. A collector that is not available
	// has not failed.
	Available(ctx context.Context) bool
	// Collect returns the present figures. It must return soon after ctx has ended. The caller owns
	// the map; Collect makes a new one each time. Figures returned with an error are published, and
	// the error is counted and logged as a failure. Nil Metrics leave the last ones in force.
	Collect(ctx context.Context) (Metrics, error)
	Cost() Cost
}

// builtIn has the methods that the built-in collectors share.
type builtIn struct {
	name   string
	cost   Cost
	fields []string // see Lister
}

// Type returns the name of the figures.
func (b builtIn) Type() string { return b.name }

// Available returns true.
func (builtIn) Available(context.Context) bool { return true }

// Fields implements Lister.
func (b builtIn) Fields() []string { return b.fields }

// Cost returns how much a collection burdens the machine.
func (b builtIn) Cost() Cost { return b.cost }

// Entry is a collector with its times.
type Entry struct {
	Collector Collector
	// Interval lasts from the end of one collection to the start of the next, MinInterval to
	// MaxInterval. 0 is the default of the collector's cost.
	Interval time.Duration
	// Timeout bounds one collection, at most Interval. 0 is the default of the collector's cost, or
	// Interval if that is shorter.
	Timeout time.Duration
}

func (e Entry) withDefaults() Entry {
	if e.Interval == 0 {
		e.Interval = e.Collector.Cost().DefaultInterval()
	}
	if e.Timeout == 0 {
		e.Timeout = min(e.Collector.Cost().DefaultTimeout(), e.Interval)
	}
	return e
}
