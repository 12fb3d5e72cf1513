package v1

// keys holds the names of the first version's keys, and of one key of ours: watched.
type keys struct {
	// prefix is empty, or ends in a colon; watched lies below the second version's prefix.
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

// watched returns the key of a hash: service -> Redis' ms of the last heartbeat from a provider of
// the first version, or of the start of its bridge.
func (k keys) watched() string { return k.own }
