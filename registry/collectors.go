package registry

import (
	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
)

type (
	// Collector collects the figures of one type, such as the state of a database. Methods:
	//
	//	Type() string                                name of the figures
	//	Available(ctx) bool                          whether there is something to collect
	//	Collect(ctx) (Metrics, error)                the present figures; must return soon after ctx has ended
	//	Cost() Cost                                  decides interval and time limit if none is set
	Collector = collector.Collector
	// Metrics are figures by field: float64, int64, int, bool or string.
	Metrics = collector.Metrics
	// Cost is how much a collection burdens the machine.
	Cost = collector.Cost
	// Collection is a Collector with its Interval and Timeout; zero means the values of its cost.
	Collection = collector.Entry
	// HeartbeatPolicy decides what a provider sends, and when; see Options.Heartbeat.
	HeartbeatPolicy = heartbeat.Policy
	// Threshold says which change of a figure is significant: its Kind is Absolute, Percent or Any.
	Threshold = heartbeat.Threshold
)

// The costs of a Collector.
const (
	CostLow    = collector.CostLow
	CostMedium = collector.CostMedium
	CostHigh   = collector.CostHigh
)

// The kinds of a Threshold.
const (
	Absolute = heartbeat.Absolute
	Percent  = heartbeat.Percent
	Any      = heartbeat.Any
)

// SystemCollectors returns collectors of memory, cpu, disk (of the root), network and process, each
// with the interval of its cost. The caller owns the slice.
func SystemCollectors() []Collection {
	return []Collection{
		{Collector: collector.NewMemory()},
		{Collector: collector.NewCPU()},
		{Collector: collector.NewDisk()},
		{Collector: collector.NewNetwork()},
		{Collector: collector.NewProcess()},
	}
}
