package bulk

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// operations is the hash of plans and operations, by id.
	operations string
	// targets is the hash of their targets, by id: names with a space between them.
	targets string
}

func keysOf(l script.Layout) keys {
	return keys{operations: l.Key("bulk", ""), targets: l.Key("bulk:targets", "")}
}
