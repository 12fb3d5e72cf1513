package registry

import "time"

// Target is an instance that wants active checks.
type Target struct {
	Service, ID, Epoch, Host string
	Port                     int
	Check                    Check
	// Persistent instances send no heartbeats: their failure loses its meaning if it is not
	// repeated.
	Persistent bool
	// Failing says why its checks fail, as Redis has it; empty if they do not.
	Failing string
}

// Name returns service:id. No service name has a colon.
func (t *Target) Name() string { return t.Service + ":" + t.ID }

// Same reports whether both are checked in the same way.
func (t *Target) Same(o *Target) bool {
	return t.Host == o.Host && t.Port == o.Port && t.Check == o.Check && t.Epoch == o.Epoch
}

// Cleaned is the result of one call of cleanup.
type Cleaned struct {
	Removed int
	// More is true if more is left to remove, or to end, than one call does.
	More bool
	// Guard says why silent instances are not removed, or is empty.
	Guard string
	// Every is the time until the next call.
	Every time.Duration
}

// Detail is an instance as operators see it.
type Detail struct {
	Instance
	// BeatAt is when its last heartbeat came, by Redis' clock; zero for a persistent instance.
	BeatAt time.Time
}

// Summary is a service as operators see it.
type Summary struct {
	Service         string
	Instances, Late int64
	Revision        int64
	// Why says why there is no instance, Guard why silent ones are not removed; empty otherwise.
	Why, Guard   string
	Limit, Every time.Duration
}
