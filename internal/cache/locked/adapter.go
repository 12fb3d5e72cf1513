package locked

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Follower keeps a State current. It also provides what a State lacks: the clock of its figures,
// and which cells answer. *cache.Cache implements it.
type Follower interface {
	Now() int64
	SilenceLimit() time.Duration
	MayReturn(job *freeslot.Job) bool
	Stale() bool
	AllNodes() []*selection.Node
	Silent(limit time.Duration) []cache.SilentNode
	ConfigVersion() uint64
	Config() *selection.Config
	Epoch(id string) cell.Epoch
	OnFree(f func(node *selection.Node))
	Skip() selection.CellMask
	CellFailed(cell int)
	CellRefused(cell int)
}

// Adapter is what a dispatcher asks of the fleet if a replica chooses from a State instead of the
// cache. Nodes and classes come from the State, everything else from the Follower.
type Adapter struct {
	Follower
	*State
}

// NewAdapter returns an Adapter. nodes must be the mirror of f.
func NewAdapter(f Follower, nodes *State) *Adapter { return &Adapter{Follower: f, State: nodes} }
