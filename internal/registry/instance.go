package registry

import (
	"encoding/json"
	"fmt"
	"time"
)

// Registration describes one of a provider's instances.
type Registration struct {
	// Service is the name of the service, as freeslot.ValidateName accepts it.
	Service string
	// ID names the instance within its service: 1 to 128 printable ASCII characters without spaces
	// and braces. Empty means host:port.
	ID string
	// Host is where clients reach the instance. Empty means the local address of the connection to
	// Redis. Loopback is refused unless Redis is on loopback, too.
	Host string
	// Port is a number from 1 to 65535.
	Port int
	// Protocol is what the instance speaks, such as HTTP or GRPC. Empty means TCP.
	Protocol string
	// Weight is the instance's share of the traffic relative to others: more than 0, up to 10,000.
	// nil means 1. For no traffic, set Disabled.
	Weight *float64
	// Disabled, Draining and Unhealthy each keep new traffic away. Disabled is an operator's wish.
	// Draining is true once the instance begins to end. Unhealthy is the provider's own verdict.
	Disabled, Draining, Unhealthy bool
	// Persistent instances send no heartbeats and stay until they are deregistered.
	Persistent bool
	// Interval is the time between heartbeats, 100 ms to 5 min. Zero means 10 s.
	Interval time.Duration
	// Check says how replicas check the instance from outside. nil means not at all.
	Check *Check
	// Metadata holds up to 64 labels: keys of 1 to 64 bytes and values of up to 1,024 bytes of
	// UTF-8. The label zone says where the instance runs, for clients that prefer their own zone.
	Metadata map[string]string
}

// Check is an active check, made by replicas at the instance's own host and port.
type Check struct {
	// Kind is http, https, tcp, grpc, websocket, or a kind that was added in Go.
	Kind string `json:"kind"`
	// Path is the path for http, https and websocket, and the service for grpc. Empty means /, or
	// the server as a whole.
	Path string `json:"path,omitempty"`
	// Interval is the time between checks, 1 s to 5 min. Zero means 5 s; JSON leaves that out.
	Interval Milliseconds `json:"interval_ms,omitempty"`
	// Timeout bounds one check. Zero means 2 s, or the interval if that is less; JSON leaves zero
	// out.
	Timeout Milliseconds `json:"timeout_ms,omitempty"`
	// Rise and Fall are the numbers of equal results in a row that change the verdict to well and
	// to failing. Zero means 2 and 3.
	Rise int `json:"rise,omitempty"`
	Fall int `json:"fall,omitempty"`
}

// Milliseconds is a duration that JSON writes as a whole number of milliseconds.
type Milliseconds time.Duration

// longestMilliseconds is a year.
const longestMilliseconds = 366 * 24 * 3600 * 1000

// MarshalJSON writes milliseconds.
func (m Milliseconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(m).Milliseconds())
}

// UnmarshalJSON reads milliseconds, more than 0 and at most a year.
func (m *Milliseconds) UnmarshalJSON(raw []byte) error {
	var ms int64
	if err := json.Unmarshal(raw, &ms); err != nil {
		return err
	}
	if ms <= 0 || ms > longestMilliseconds {
		return fmt.Errorf("is %d ms, expected more than 0 and at most %d", ms, int64(longestMilliseconds))
	}
	*m = Milliseconds(time.Duration(ms) * time.Millisecond)
	return nil
}

// Override holds what an operator has set for an instance. It survives heartbeats and restarts of
// the provider. Fields that are nil leave the provider's values in force.
type Override struct {
	Weight   *float64 `json:"weight,omitempty"`
	Enabled  *bool    `json:"enabled,omitempty"`
	Draining *bool    `json:"draining,omitempty"`
	Author   string   `json:"author"`
	Note     string   `json:"note,omitempty"`
	// AtMS is when it was set, UntilMS when it ends by itself, 0 for never; Redis' clock.
	AtMS    int64 `json:"at_ms"`
	UntilMS int64 `json:"until_ms,omitempty"`
	// GoneMS is when the instance left; 0 while it is there.
	GoneMS int64 `json:"gone_ms,omitempty"`
}

// Instance is an instance as consumers see it. It is immutable once given out.
type Instance struct {
	Registration
	// Weight is the instance's share of the traffic relative to others. It replaces
	// Registration.Weight, which is nil.
	Weight float64
	// Epoch names the life of its provider. Revision is the service's, at the last change of the
	// instance.
	Epoch    string
	Revision int64
	// RegisteredAt is when this epoch registered, by Redis' clock.
	RegisteredAt time.Time
	// Failing is the reason why active checks fail; otherwise empty.
	Failing string
	// Override is what an operator has set; nil without one. It is already applied to Weight,
	// Disabled and Draining.
	Override *Override
	// Metrics holds its last figures by type, as the provider sent them; nil without any.
	Metrics json.RawMessage
	// Origin is v1 for a copy of an instance of the first version of the registry.
	Origin string
	// Late is true if no heartbeat came within the consumer's timeout. Unconfirmed is true if the
	// instance is known from before Redis lost its data, and has not registered again yet.
	Late, Unconfirmed bool

	own own
}

// Healthy reports whether the instance should get traffic.
func (i *Instance) Healthy() bool { return i.willing() && !i.Late }

// willing reports whether the instance is Healthy apart from lateness: late instances are a last
// resort, unwilling ones never are.
func (i *Instance) willing() bool {
	return !i.Disabled && !i.Draining && !i.Unhealthy && i.Failing == ""
}

// State says how far a list can be trusted.
type State string

// The states of a list.
const (
	// StateLive: the list is what Redis has.
	StateLive State = "live"
	// StateStale: Redis is silent; the list is the last one that it gave.
	StateStale State = "stale"
	// StateRebuilding: Redis has lost data; some instances have not registered again yet.
	StateRebuilding State = "rebuilding"
	// StateProtected: too many instances are silent at once, so none is removed.
	StateProtected State = "protected"
	// StateDisk: Redis was not reached since the start; the list is from the disk.
	StateDisk State = "disk"
	// StateEmpty: there is no usable instance; the list's Why says why.
	StateEmpty State = "empty"
)

// The reasons of empty lists.
const (
	WhyDeregistered    = "deregistered"
	WhyExpired         = "expired"
	WhyRemoved         = "removed"
	WhyNeverRegistered = "never registered"
	WhyNoneHealthy     = "none healthy"
	WhyNoneMatches     = "none matches"
)

// List holds the instances of a service, with the reason for its state. It is immutable, and all
// its readers share it: do not change it.
type List struct {
	Service  string
	State    State
	Why      string
	Revision int64
	// Instances is sorted by id.
	Instances []*Instance
	// Timeout is the timeout that lateness was judged by: the consumer's own, or twice the
	// service's longest interval if that is more.
	Timeout time.Duration
	// Last is true if Instances has only late instances, because no other is left.
	Last bool

	head    head // of the view
	healthy *onceList
}
