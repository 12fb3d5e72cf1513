package dispatch

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// groups holds groups that are filled one after the other.
type groups struct {
	list []selection.Group
	at   int // index of the group that is being filled
}

// groupRoom is large enough for the groups of any batch.
type groupRoom [selection.MaxBatch + cell.MaxCandidates]selection.Group

func chooseGroups(room []selection.Group, class *selection.Class, jobs int, q *selection.Query) groups {
	return groups{list: class.Batch(room, jobs, q, selection.NewSource(rand.Uint64()))}
}

// left reports whether a place is free.
func (g *groups) left() bool { return g.at < len(g.list) && g.list[g.at].Jobs > 0 }

// openLife is how long groups stay open. What a replica knows of other replicas is about as old.
const openLife = 2 * time.Millisecond

// openGroups holds groups for jobs that come alone while others are under way: the next call of a
// cell gathers them. Two kinds of jobs can share an entry, by their hashes; then one of them has
// groups at a time. The zero value is empty. It is safe for concurrent use.
type openGroups [64]openPlace

type openPlace struct {
	mu sync.Mutex
	groups
	room groupRoom
	// What the groups were chosen for, and until when they are used. few is true if there were few
	// groups or none: until then no others are chosen, because a search costs as much as many
	// single choices.
	class *selection.Class
	slots int
	skip  selection.CellMask
	until time.Time
	few   bool
}

func (o *openGroups) place(class *selection.Class, slots int) *openPlace {
	return &o[(maphash.Comparable(classSeed, class)+uint64(slots))%uint64(len(o))]
}

// leaveBusy closes the groups of nodes that are more than half full, and returns how many jobs the
// other groups are for. Slots of busy nodes are left to single choices: there a group saves little,
// and replicas refuse each other more jobs. The groups behind a busy node are not used: their nodes
// are as busy or, under [selection.PolicyBinpack], should stay emptier.
func (g *groups) leaveBusy() (jobs int) {
	for i := range g.list {
		group := &g.list[i]
		if used, pending := group.Node.Load(); 2*(used+pending) > group.Node.Max() {
			group.Jobs = 0
			return jobs
		}
		jobs += group.Jobs
	}
	return jobs
}
