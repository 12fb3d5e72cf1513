package v1

// keys are the names of the first version, and one of ours: watched.
type keys struct {
	// prefix is empty, or ends in a colon; watched is below the second version's prefix.
	prefix, own string
}

func newKeys(prefix, own string) keys {
	if prefix != "" {
		prefix += ":"
	}
	return keys{prefix: prefix, own: own + ":registry:v1"}
}

func (k keys) instance(service, id string) string { return k.prefix + "services:" + service + ":" + id }

func (k keys) members(service string) string { return k.prefix + "service_instances:" + service }
func (k keys) scores(service string) string  { return k.prefix + "heartbeat:" + service }
func (k keys) change(service string) string  { return k.prefix + "service_change:" + service }

// watched is a hash: service -> Redis' ms of the last heartbeat of a first version's provider, or
// of the beginning of its bridge.
func (k keys) watched() string { return k.own }
