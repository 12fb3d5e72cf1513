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
	// matchers is how many nodes of a cell are matched at the same time.
	matchers = 4
	// matchQueue is how many free nodes of a cell can wait to be matched. The sweep finds further
	// ones.
	matchQueue = 1024
	// matchClasses is the most classes in one call: as many as Redis remembers for a node.
	matchClasses = 32
	// noJobRest is how long sweeps leave out a free node that got no job and has not changed since:
	// the waiting jobs need more slots. The replica that goes first for the node still offers it.
	noJobRest = 2 * time.Second
)

// matcher lets free nodes of one cell take waiting jobs. A completion hands its slot over by
// itself. The matcher handles all other ways in which a slot becomes free or a job begins to wait.
type matcher struct {
	free chan offered
	// queued holds the ids of the nodes in free, so that each is there once.
	queued *xsync.MapOf[string, struct{}]
	// noJobs holds the nodes that got no job, by id.
	noJobs *xsync.MapOf[string, noJob]
	// begun counts the jobs that began.
	begun atomic.Uint64
	// wake gets a token when the sweep must run at once.
	wake chan struct{}
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

func newMatcher() *matcher {
	return &matcher{
		free: make(chan offered, matchQueue), wake: make(chan struct{}, 1),
		queued: xsync.NewMapOf[string, struct{}](), noJobs: xsync.NewMapOf[string, noJob](),
	}
}

// nodeFreed is called when a node can take a job. Several replicas hear of it, and one goes first.
// If that one is gone, or knows of no waiting job, a sweep finds the node.
func (d *Dispatcher) nodeFreed(n *selection.Node) {
	if c := d.clients[n.Cell()]; c.queues.byID.Size() > 0 && d.goesFirst(n.ID()) {
		c.offer(n, false)
	}
}

// goesFirst reports whether this replica goes first for a node.
func (d *Dispatcher) goesFirst(node string) bool {
	share := d.share.Load()
	return share == nil || share.Has(node)
}

// offer queues a node to be matched. It does not block.
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

// wakeSweep makes the sweep run at once.
func (c *client) wakeSweep() {
	select {
	case c.match.wake <- struct{}{}:
	default:
	}
}

// matchNodes is one of the loops that match the offered nodes.
func (c *client) matchNodes() {
	for {
		select {
		case <-c.d.ctx.Done():
			return
		case o := <-c.match.free:
			c.match.queued.Delete(o.node) // first, so that a change from now on offers the node again
			c.take(o)
		}
	}
}

// take lets a node take waiting jobs of the classes that it fits.
func (c *client) take(o offered) {
	n, known := c.d.nodes.Node(o.node)
	if !known || n.Draining() {
		return
	}
	if used, _ := n.Load(); used >= n.Max() && !o.probe {
		return
	}
	age := c.d.fence.enter()
	defer c.d.fence.leave(age)
	// The version is read before the classes, which must not be older than the version that Redis
	// records for them.
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
		c.warn("queues.match_failed", err, zap.String("node", o.node)) // reply streams report the jobs that began
		return
	}
	c.took(n, taken)
}

func (c *client) took(n *selection.Node, t cell.Taken) {
	if t.Superseded {
		return // the cache will soon hear of the new agent
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

// classesFor returns the classes with waiting jobs that the node fits, under the configuration with
// this version.
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
