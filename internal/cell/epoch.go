package cell

import "github.com/oklog/ulid/v2"

// Revision is a cell's counter: every announced change of a node takes the next number.
type Revision = uint64

// Epoch is one incarnation (boot id) of a node's agent.
type Epoch = string

// ImportEpoch is the epoch of a node that was registered without an agent. It is draining until an
// agent registers it.
const ImportEpoch Epoch = "import"

// NewEpoch returns the epoch of a new incarnation of an agent.
func NewEpoch() Epoch { return ulid.Make().String() }

// Attempt names one attempt of one job. The ownership check compares attempts.
type Attempt struct {
	Job string
	N   int
}
