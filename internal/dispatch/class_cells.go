package dispatch

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// classCells says where the nodes that fit a class are, in any state: how many each cell has, and
// the most slots of one node there. It is immutable.
type classCells struct {
	class *selection.Class
	nodes []int
	slots []int
}

// classCellsCache remembers the classCells of some classes until a class is built again. It is safe
// for concurrent use.
type classCellsCache struct {
	nodes  Nodes
	cells  int // how many
	places [256]atomic.Pointer[classCells]
}

var classSeed = maphash.MakeSeed()

func (k *classCellsCache) of(class *selection.Class) *classCells {
	place := &k.places[maphash.Comparable(classSeed, class)%uint64(len(k.places))]
	if known := place.Load(); known != nil && known.class == class {
		return known
	}
	c := &classCells{class: class, nodes: make([]int, k.cells), slots: make([]int, k.cells)}
	if k.cells == 1 {
		c.nodes[0], c.slots[0] = class.Fits(), class.MaxSlots()
	} else {
		for _, n := range k.nodes.AllNodes() {
			if i := n.Cell(); class.Has(n) {
				c.nodes[i], c.slots[i] = c.nodes[i]+1, max(c.slots[i], n.Max())
			}
		}
	}
	place.Store(c)
	return c
}

// takes reports whether the job may wait in a cell: a node there could run it.
func (c *classCells) takes(cell int, job *freeslot.Job, skip selection.CellMask) bool {
	return !skip.Has(cell) && c.nodes[cell] > 0 && job.SlotCount() <= c.slots[cell]
}

// draw picks at random a cell in which the job may wait, weighted by the number of nodes; false if
// there is none.
func (c *classCells) draw(job *freeslot.Job, skip selection.CellMask) (cell int, ok bool) {
	seen := 0
	for i, n := range c.nodes {
		if !c.takes(i, job, skip) {
			continue
		}
		if seen += n; rand.IntN(seen) < n {
			cell, ok = i, true
		}
	}
	return cell, ok
}

// cellKey returns the key that decides about a job's cell; false if any cell will do.
func cellKey(job *freeslot.Job) (key string, ok bool) {
	if job.ConcurrencyKey != "" {
		return job.ConcurrencyKey, true
	}
	return job.IdempotencyKey, job.IdempotencyKey != ""
}

// keyCell returns the cell for jobs with this key. It is the same on every replica, as long as the
// same cells have nodes that could run the job. A cell that does not answer now counts, too: in
// another cell a second job would be created. It returns false if no cell has such nodes.
func (c *classCells) keyCell(tenant, key string, job *freeslot.Job) (index int, ok bool) {
	count := len(c.nodes)
	first := cell.NodeCell(tenant+" "+key, count)
	for i := range count {
		if index = (first + i) % count; c.takes(index, job, 0) {
			return index, true
		}
	}
	return 0, false
}
