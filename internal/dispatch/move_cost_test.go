package dispatch

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// counted counts how often all nodes are looked at.
type counted struct {
	Nodes
	looks *atomic.Int64
}

func (c counted) AllNodes() []*selection.Node {
	c.looks.Add(1)
	return c.Nodes.AllNodes()
}

// While nothing changes, the mover looks at all nodes once for each class with waiting
// jobs, however many classes there are. It runs four times a second.
func TestMovesLookAtNodesOnce(t *testing.T) {
	t.Parallel()
	const classes = 1000 // more than classCells remembers
	r := newCells(t, 2, redistest.Shared(t))
	for i := range 2 {
		r.agent(r.nodesIn(i, 1, 1)[0])
	}
	var looks atomic.Int64
	rep := r.unstarted("r1", func(c *replicaConfig) {
		c.nodes = func(n *cache.Cache) Nodes { return counted{n, &looks} }
	})
	start(t, rep.cache) // without the loops of the dispatcher: this test calls them
	c := rep.byCell[0]
	for i := range classes {
		j := freeslot.Job{Service: "echo", Requirement: freeslot.Requirement{LabelRules: []freeslot.LabelRule{{Label: "region", Operator: freeslot.LabelNotIn, Values: []string{fmt.Sprint("r", i)}}}}}
		c.queues.byID.Store(class.ID(j.Service, &j.Requirement), &queue{job: j})
	}
	mover := newMover(c)
	mover.beginMoves(true)
	first := looks.Load()
	if first == 0 {
		t.Fatal("the nodes were not looked at")
	}
	for range 3 {
		mover.beginMoves(true)
	}
	if more := looks.Load() - first; more > 0 {
		t.Errorf("%d more looks at all nodes after %d for %d classes", more, first, classes)
	}
}
