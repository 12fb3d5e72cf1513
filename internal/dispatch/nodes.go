package dispatch

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Nodes is what the dispatcher knows of the fleet; *cache.Cache implements it. Everything but
// Settle answers from memory at once. All methods may be called concurrently.
type Nodes interface {
	// Class returns the nodes that fit a job of this class, to choose from. It may be older than
	// the last changes of profiles. It allocates nothing while profiles stay the same.
	Class(service string, r *freeslot.Requirement) *selection.Class
	// Settle returns the class as of every profile known when it was called, and waits for that. It
	// is for the decision that no node fits.
	Settle(service string, r *freeslot.Requirement) *selection.Class
	// Node returns the live figures of a node.
	Node(id string) (*selection.Node, bool)
	// Refused takes the fresh state that came with a refusal.
	Refused(r cell.Refusal)
	// Now is the clock of the nodes' figures, in nanoseconds: monotonic, cheap and a little late.
	Now() int64
	// SilenceLimit is how long a node may be silent and still be chosen.
	SilenceLimit() time.Duration
	// AllNodes are all nodes known. Their figures need not be the live ones.
	AllNodes() []*selection.Node
	// Silent are the nodes that were silent for longer than limit. It is a hint.
	Silent(limit time.Duration) []cache.SilentNode
	// Epoch is the incarnation of a node's agent; "" if there is no such node.
	Epoch(id string) cell.Epoch
	// ConfigVersion is the version of Config.
	ConfigVersion() uint64
	// Config is the configuration by which nodes are chosen.
	Config() *selection.Config
	// OnFree sets the function that is called when a node has become able to take a job. f must
	// not block.
	OnFree(f func(node *selection.Node))
	// Size is the number of nodes known.
	Size() int
	// MayReturn reports whether a node that fits the job may be back soon, though none is known.
	// After false, Settle has every node that has come back.
	MayReturn(job *freeslot.Job) bool
	// Stale reports whether the state of some cell is out of date.
	Stale() bool
	// Skip are the cells that do not answer now, or refuse writes. It never covers all cells.
	Skip() selection.CellMask
	// CellFailed notes that a call of this cell failed. Skip has the cell until it answers again.
	CellFailed(cell int)
	// CellRefused notes that this cell refused a write. Skip has the cell for a while, even if it
	// answers reads.
	CellRefused(cell int)
}
