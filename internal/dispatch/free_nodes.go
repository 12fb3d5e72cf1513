package dispatch

import (
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/freeslot/freeslot/internal/selection"
)

// freeNodesMost is how many free nodes of a cell can wait to be matched. The sweep finds further
// ones.
const freeNodesMost = 1024

// freeNodes are the nodes of one cell that will be matched with waiting jobs. It is safe for
// concurrent use.
type freeNodes struct {
	offers chan offered
	// queued holds the ids of the nodes in offers, so that each is there once.
	queued *xsync.MapOf[string, struct{}]
	// noJobs holds the nodes that got no job, by id.
	noJobs *xsync.MapOf[string, noJob]
	// begun counts the jobs that began.
	begun atomic.Uint64
}

// offered is a node that will take jobs. probe is true if it seems full.
type offered struct {
	node  string
	probe bool
}

type noJob struct {
	used int
	at   int64
}

func newFreeNodes() freeNodes {
	return freeNodes{
		offers: make(chan offered, freeNodesMost),
		queued: xsync.NewMapOf[string, struct{}](), noJobs: xsync.NewMapOf[string, noJob](),
	}
}

// offer queues a node to be matched. It does not block.
func (f *freeNodes) offer(n *selection.Node, probe bool) {
	if _, there := f.queued.LoadOrStore(n.ID(), struct{}{}); there {
		return
	}
	select {
	case f.offers <- offered{n.ID(), probe}:
	default:
		f.queued.Delete(n.ID())
	}
}
