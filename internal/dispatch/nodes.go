package dispatch

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Nodes is what the dispatcher knows of the fleet. *cache.Cache implements it. All methods except
// Settle answer from memory at once. They may be called concurrently.
type Nodes interface {
	// Class returns the nodes that fit a job of this class, to choose from. It may be older than
	// the last changes of profiles. It allocates nothing while profiles stay the same.
	Class(service string, r *freeslot.Requirement) *selection.Class
	// Settle returns the class after waiting for every profile known at the time of the call. It is
	// for the decision that no node fits.
	Settle(service string, r *freeslot.Requirement) *selection.Class
	// Node returns the live figures of a node.
	Node(id string) (*selection.Node, bool)
	// Refused stores the fresh state that came with a refusal.
	Refused(r cell.Refusal)
	// Now returns the time by the clock of the nodes' figures, in nanoseconds: monotonic, cheap and
	// a little late.
	Now() int64
	// SilenceLimit returns how long a node may be silent and still be chosen.
	SilenceLimit() time.Duration
	// AllNodes returns all known nodes. Their figures may be out of date.
	AllNodes() []*selection.Node
	// Silent returns the nodes that were silent for longer than limit. It is a hint.
	Silent(limit time.Duration) []cache.SilentNode
	// Epoch returns the incarnation of a node's agent; "" if there is no such node.
	Epoch(id string) cell.Epoch
	// ConfigVersion returns the version of Config.
	ConfigVersion() uint64
	// Config returns the configuration by which nodes are chosen.
	Config() *selection.Config
	// OnFree sets the function that is called when a node has become able to take a job. f must
	// not block.
	OnFree(f func(node *selection.Node))
	// Size returns the number of known nodes.
	Size() int
	// MayReturn reports whether a node that fits the job may be back soon, although none is known.
	// After it returns false, Settle includes every node that has come back.
	MayReturn(job *freeslot.Job) bool
	// Stale reports whether the state of some cell is out of date.
	Stale() bool
	// Skip returns the cells that do not answer now, or refuse writes. It never holds all cells.
	Skip() selection.CellMask
	// CellFailed records that a call of this cell failed. Skip then has the cell until it answers
	// again.
	CellFailed(cell int)
	// CellRefused records that this cell refused a write. Skip then has the cell for a while, even
	// if it answers reads.
	CellRefused(cell int)
}
