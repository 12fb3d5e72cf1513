package registry

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
)

type (
	// Picker chooses an instance of a service for each call. Methods:
	//
	//	Pick(ctx, key) (Picked, error)               chooses; key matters to ConsistentHash alone. The error can be a *EmptyError
	//	PickOther(ctx, key, Picked) (Picked, error)  chooses another one, for a second try
	Picker = pick.Picker
	// Picked is an instance for one call. Call Done exactly once with the outcome: an instance that
	// takes no connections is set aside for a while.
	Picked = pick.Picked
	// PickConfig says how a Picker chooses. The zero value chooses by weight.
	PickConfig = pick.Config
	// Policy says how a Picker chooses.
	Policy = pick.Policy
	// Calls measures how long calls take, as a Collector. Methods:
	//
	//	Add(service, took, error)   notes a call that no picker, transport or interceptor makes
	Calls = pick.Calls
	// EmptyError says why there is no instance to pick.
	EmptyError = registry.EmptyError
	// Filter selects instances by their metadata and metrics, for PickConfig, List.Match and
	// Consumer.Query. Methods:
	//
	//	Takes(*Instance) bool
	Filter = registry.Filter
)

// The policies of a Picker.
const (
	Random         = pick.Random
	RoundRobin     = pick.RoundRobin
	Weighted       = pick.Weighted
	LeastLoaded    = pick.LeastLoaded
	ConsistentHash = pick.ConsistentHash
)

// ErrUnavailable is for clients that know that an instance takes no connections: wrap it in the
// error for Picked.Done.
var ErrUnavailable = pick.ErrUnavailable

// NewPicker follows a service until the consumer's Stop, waits for its first list, and makes a
// picker over its lists. Errors: an *freeslot.Error that names every bad field, or an error of
// Consumer.AllInstances.
func NewPicker(ctx context.Context, c *Consumer, service string, cfg PickConfig) (*Picker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	lists, err := c.Lists(ctx, service)
	if err != nil {
		return nil, err
	}
	return pick.New(cfg, lists), nil
}

// NewCalls returns a Calls. Give it to PickConfig, transport.Config or resolver.Measure, which
// measure calls, and to Options.Collectors, which report the figures.
func NewCalls() *Calls { return pick.NewCalls() }

// NewFilter makes a filter of rules that must all hold. Rules for metadata are written as jobs
// write rules for labels; rules for metrics look like "cpu.usage < 0.8". Errors: an *freeslot.Error
// that names every bad term.
func NewFilter(metadata []freeslot.LabelRule, metrics []string) (*Filter, error) {
	return registry.NewFilter(metadata, metrics)
}
