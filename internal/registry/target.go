package registry

// Target is an instance that wants active checks.
type Target struct {
	Service, ID, Epoch, Host string
	Port                     int
	Check                    Check
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
	// More: there was more to remove than one call does.
	More bool
	// Guard is why silent instances are not removed, or empty.
	Guard string
}
