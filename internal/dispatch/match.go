package dispatch

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// matchers is how many nodes of a cell are matched with jobs at once.
	matchers = 4
	// matchQueue is how many free nodes of a cell can wait for that; the sweep finds
	// those that are left out.
	matchQueue = 1024
	// matchClasses is how many classes one call names: as many as Redis remembers of a
	// node.
	matchClasses = 32
	// vainRest is for how long sweeps leave a node alone that got no job although it is free,
	// and has not changed since: the jobs that wait need more slots. Those of the replica
	// that goes first for the node come every time.
	noJobRest = 2 * time.Second
)

// matcher has free nodes of one cell take jobs that wait: completions hand their slots
// over by themselves once a node has done so, and this is for all other ways in which a
// slot becomes free or a job comes to wait.
type matcher struct {
	free chan offered
	// queued are the nodes in free, by id: each is there once.
	queued *xsync.MapOf[string, struct{}]
	// vain are the nodes that got nothing, by id.
	noJobs *xsync.MapOf[string, noJob]
	// begun counts the jobs that began.
	begun atomic.Uint64
	// looks has a token when the sweep is to come at once.
	wake chan struct{}
}

// offered is a node that is to take jobs; with probe it seems to be full.
type offered struct {
	node  string
	probe bool
}

type noJob struct {
	used int
	at   int64
}

func newMatcher() *matcher {
	return &matcher{
		free: make(chan offered, matchQueue), wake: make(chan struct{}, 1),
		queued: xsync.NewMapOf[string, struct{}](), noJobs: xsync.NewMapOf[string, noJob](),
	}
}

// freed takes in that a node can take a job. Of the replicas that hear it one goes first;
// where that one is gone, or knows of nobody who waits, the sweeps find the node.
func (d *Dispatcher) nodeFreed(n *selection.Node) {
	if d.queued.load().Has(n.Cell()) && d.goesFirst(n.ID()) {
		d.clients[n.Cell()].offer(n, false)
	}
}

// first reports whether this replica goes first for a node.
func (d *Dispatcher) goesFirst(node string) bool {
	share := d.share.Load()
	return share == nil || share.Has(node)
}

// offer has a node matched soon. It does not block.
func (c *client) offer(n *selection.Node, probe bool) {
	m := c.match
	if _, there := m.queued.LoadOrStore(n.ID(), struct{}{}); there {
		return
	}
	select {
	case m.free <- offered{n.ID(), probe}:
	default:
		m.queued.Delete(n.ID())
	}
}

// look has the sweep come at once.
func (c *client) wakeSweep() {
	select {
	case c.match.wake <- struct{}{}:
	default:
	}
}

// matchNodes is one of the loops that take nodes from the queue, until Stop.
func (c *client) matchNodes() {
	for {
		select {
		case <-c.d.ctx.Done():
			return
		case o := <-c.match.free:
			c.match.queued.Delete(o.node) // first: what changes from now on is looked at again
			c.take(o)
		}
	}
}

// take has a node take jobs that wait in the classes that it fits.
func (c *client) take(o offered) {
	n, known := c.d.nodes.Node(o.node)
	if !known || n.Draining() {
		return
	}
	if used, _ := n.Load(); used >= n.Max() && !o.probe {
		return
	}
	age := c.d.fence.enter() // before the classes are looked at
	defer c.d.fence.leave(age)
	// Before the classes, which must not be of older ones than Redis is told.
	version, epoch := c.d.nodes.ConfigVersion(), c.d.nodes.Epoch(o.node)
	if epoch == "" {
		return
	}
	classes := c.classesFor(n, version)
	if len(classes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
	defer cancel()
	taken, err := c.cell.TakeAs(ctx, o.node, epoch, classes, version)
	if err != nil {
		if c.d.ctx.Err() == nil { // whatever began, the reply streams tell
			c.sampled.Warn("queues.match_failed", zap.String("node", o.node), zap.Error(err))
		}
		return
	}
	c.took(n, taken)
}

func (c *client) took(n *selection.Node, t cell.Taken) {
	if t.Superseded {
		return // the cache is about to hear of the new agent
	}
	if t.Refusal != "" {
		c.d.nodes.Refused(cell.Refusal{Node: n.ID(), Reason: t.Refusal, Used: t.Used, MaxConcurrency: t.MaxConcurrency})
		return
	}
	n.SetUsed(t.Used)
	c.metrics.matched.Add(float64(t.Jobs))
	c.match.begun.Add(uint64(t.Jobs))
	if t.Jobs == 0 {
		c.match.noJobs.Store(n.ID(), noJob{used: t.Used, at: c.d.nodes.Now()})
	} else {
		c.match.noJobs.Delete(n.ID())
	}
}

// serves are the classes with jobs that wait and fit the node, by a configuration of this
// version.
func (c *client) classesFor(n *selection.Node, version uint64) (classes []string) {
	c.queues.byID.Range(func(id string, q *queue) bool {
		class := c.d.nodes.Class(q.job.Service, &q.job.Requirement)
		if class.ConfigVersion() != version {
			class = c.d.nodes.Settle(q.job.Service, &q.job.Requirement)
		}
		if class.ConfigVersion() == version && class.Takes(n) {
			classes = append(classes, id)
		}
		return true
	})
	if len(classes) > matchClasses {
		rand.Shuffle(len(classes), func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
		classes = classes[:matchClasses]
	}
	return classes
}
