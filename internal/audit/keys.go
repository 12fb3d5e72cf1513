package audit

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// ended is a stream of the changes that have ended, in the field "entry": a JSON object.
	ended string
	// open is a hash of the changes under way: id -> begin in ms, entry.
	open string
}

func keysOf(l script.Layout) keys {
	return keys{ended: l.Key("audit:changes", ""), open: l.Key("audit:open", "")}
}
