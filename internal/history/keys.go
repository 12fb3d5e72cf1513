package history

import "github.com/freeslot/freeslot/internal/script"

// keys holds the names of all keys of this package. They are in the first cell of a system.
type keys struct {
	// minutes is a stream of the minutes of the last day: the id is when a minute began, the field
	// "point" what is known of it.
	minutes string
}

func keysOf(l script.Layout) keys { return keys{minutes: l.Key("history:minutes", "")} }
