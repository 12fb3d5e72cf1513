package dispatch

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Nodes is what the dispatcher knows of the fleet; *cache.Cache is it. Everything
// but Settle answers from memory at once, and all of it may be used concurrently.
type Nodes interface {
	// Choose appends candidates for a job of this class to dst, within its capacity,
	// all of one cell, the best first. It allocates nothing.
	Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node
	// Settle returns the class as of every profile known when it was called, and
	// waits for that: before a client is told that no node fits.
	Settle(service string, r *freeslot.Requirement) *selection.Class
	// Node returns the live figures of a node.
	Node(id string) (*selection.Node, bool)
	// Refused takes over the fresh state that came with a refusal.
	Refused(r cell.Refusal)
	// Now is the clock of the nodes' figures, in nanoseconds: monotonic, cheap and a
	// little late.
	Now() int64
	// SilenceLimit is how long a node may be silent and still be chosen.
	SilenceLimit() time.Duration
	// Size is the number of nodes known.
	Size() int
	// Stale reports whether what is known of some cell is out of date.
	Stale() bool
	// Skip are the cells that do not answer now. It never covers all of them.
	Skip() selection.CellMask
	// CellFailed says that a call of this cell failed: Skip has it until the cell
	// answers again.
	CellFailed(cell int)
}
