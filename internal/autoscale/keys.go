package autoscale

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of the keys of a pool. They are in the first cell of a system.
type keys struct {
	// turn is a string that expires: the replica that ran the command last.
	turn string
	// last is a string: the number of nodes in the last run that succeeded.
	last string
}

func keysOf(l script.Layout, pool string) keys {
	return keys{turn: l.Key("autoscale:turn", pool), last: l.Key("autoscale:last", pool)}
}
