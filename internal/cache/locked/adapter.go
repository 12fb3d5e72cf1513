package locked

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Follower is what keeps a State current, and knows what a State cannot: the clock of
// its figures and which cells answer. *cache.Cache is it.
type Follower interface {
	Now() int64
	SilenceLimit() time.Duration
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

// Path puts a State onto the path of jobs in the place of the cache that it mirrors:
// nodes come from the State, all else from the Follower. It is what a dispatcher asks
// of the fleet.
type Path struct {
	Follower
	nodes *State
}

// NewPath makes a Path. f must have nodes as its mirror.
func NewPath(f Follower, nodes *State) *Path { return &Path{Follower: f, nodes: nodes} }

// Choose is [State.Choose].
func (p *Path) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	return p.nodes.Choose(dst, service, r, q, rnd)
}

// Class is [State.Class].
func (p *Path) Class(service string, r *freeslot.Requirement) *selection.Class {
	return p.nodes.Class(service, r)
}

// Settle is [State.Settle].
func (p *Path) Settle(service string, r *freeslot.Requirement) *selection.Class {
	return p.nodes.Settle(service, r)
}

// Node is [State.Node].
func (p *Path) Node(id string) (*selection.Node, bool) { return p.nodes.Node(id) }

// Refused is [State.Refused].
func (p *Path) Refused(r cell.Refusal) { p.nodes.Refused(r) }

// Size is [State.Size].
func (p *Path) Size() int { return p.nodes.Size() }
