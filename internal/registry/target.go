package registry

import "time"

// Target is an instance that wants active checks.
type Target struct {
	Service, ID, Epoch, Host string
	Port                     int
	Check                    Check
	// Persistent: a failure that is not repeated says after a while nothing any more.
	Persistent bool
	// Failing is why its checks fail, as Redis has it; empty means that they do not.
	Failing string
}

// Name is service:id. No service name has a colon.
func (t *Target) Name() string { return t.Service + ":" + t.ID }

// Same reports whether both are checked in the same way.
func (t *Target) Same(o *Target) bool {
	return t.Host == o.Host && t.Port == o.Port && t.Check == o.Check && t.Epoch == o.Epoch
}

// Cleaned is what one call of cleanup has done.
type Cleaned struct {
	Removed int
	// More: there was more to remove, or to end, than one call does.
	More bool
	// Guard is why silent instances are not removed, or empty.
	Guard string
	// Every is when to call again.
	Every time.Duration
}

// Detail is an instance as operators see it.
type Detail struct {
	Instance
	// BeatAt is its last heartbeat, by Redis' clock; zero for a persistent instance.
	BeatAt time.Time
}

// Summary is a service as operators see it.
type Summary struct {
	Service         string
	Instances, Late int64
	Revision        int64
	// Why there is no instance, and Guard why silent ones are not removed; empty otherwise.
	Why, Guard   string
	Limit, Every time.Duration
}
