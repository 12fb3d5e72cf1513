package presence

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// replicas is the zset of the running replicas, by the time (ms) of their last sign of life.
	replicas string
	// limits is the hash of their heartbeat limits, ms.
	limits string
	// figures is the hash of their figures, as package history encodes them.
	figures string
	// status is the hash of their statuses, JSON texts.
	status string
	// followed is the hash of the configurations that the replicas follow: "version generation ms".
	followed string
}

func keysOf(l script.Layout) keys {
	return keys{
		replicas: l.Key("replicas", ""), limits: l.Key("replicas:heartbeat_limit", ""),
		figures: l.Key("replicas:figures", ""), status: l.Key("replicas:status", ""),
		followed: l.Key("version:followed", ""),
	}
}
