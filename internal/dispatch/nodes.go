package dispatch

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Nodes is what the dispatcher knows of the fleet; *cache.Cache is it. Everything
// but Settle answers from memory at once, and all of it may be used concurrently.
type Nodes interface {
	// Class returns the nodes that fit a job of this class, to choose from. It may be of
	// before the last changes of profiles. It allocates nothing while they stand still.
	Class(service string, r *freeslot.Requirement) *selection.Class
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
	// AllNodes are all nodes known; their figures need not be the live ones.
	AllNodes() []*selection.Node
	// Silent are the nodes that were not heard for longer than limit. It is a hint.
	Silent(limit time.Duration) []cache.SilentNode
	// Epoch is the incarnation of a node's agent; "" when there is no such node.
	Epoch(id string) cell.Epoch
	// ConfigVersion is that of the configuration by which nodes are chosen, Config.
	ConfigVersion() uint64
	Config() *selection.Config
	// OnFree has f called, which must not block, when a node has become able to take a job.
	OnFree(f func(node *selection.Node))
	// Size is the number of nodes known.
	Size() int
	// Stale reports whether what is known of some cell is out of date.
	Stale() bool
	// Skip are the cells that do not answer now, or refuse writes. It never covers all
	// of them.
	Skip() selection.CellMask
	// CellFailed says that a call of this cell failed: Skip has it until the cell
	// answers again.
	CellFailed(cell int)
	// CellRefused says that this cell turned a write away: Skip has it for a while,
	// whatever it answers to reads.
	CellRefused(cell int)
}
