package dispatch

import (
	"math/rand/v2"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// matchers is how many nodes of a cell are matched at the same time.
	matchers = 4
	// matchClasses is the most classes in one call: as many as Redis remembers for a node.
	matchClasses = 32
)

// matcher is a loop that lets the offered nodes of one cell take waiting jobs. A completion hands
// its slot over by itself. The matcher handles all other ways in which a slot becomes free or a job
// begins to wait.
type matcher struct{ *cellClient }

func (m *matcher) run() {
	for {
		select {
		case <-m.d.ctx.Done():
			return
		case o := <-m.free.offers:
			m.free.queued.Delete(o.node) // first, so that a change from now on offers the node again
			m.take(o)
		}
	}
}

// take lets a node take waiting jobs of the classes that it fits.
func (m *matcher) take(o offered) {
	n, known := m.d.nodes.Node(o.node)
	if !known || n.Draining() {
		return
	}
	if used, _ := n.Load(); used >= n.Max() && !o.probe {
		return
	}
	age := m.d.fence.enter()
	defer m.d.fence.leave(age)
	// The version is read before the classes, which must not be older than the version that Redis
	// records for them.
	version, epoch := m.d.nodes.ConfigVersion(), m.d.nodes.Epoch(o.node)
	if epoch == "" {
		return
	}
	classes := m.classesFor(n, version)
	if len(classes) == 0 {
		return
	}
	ctx, cancel := m.d.timeout()
	defer cancel()
	taken, err := m.cell.TakeAs(ctx, o.node, epoch, classes, version)
	if err != nil {
		m.warn("queues.match_failed", err, zap.String("node", o.node)) // reply streams report the jobs that began
		return
	}
	m.took(n, taken)
}

func (m *matcher) took(n *selection.Node, t cell.Taken) {
	if t.Superseded {
		return // the cache will soon hear of the new agent
	}
	if t.Refusal != "" {
		m.d.nodes.Refused(cell.Refusal{Node: n.ID(), Reason: t.Refusal, Used: t.Used, MaxConcurrency: t.MaxConcurrency})
		return
	}
	n.SetUsed(t.Used)
	m.metrics.matched.Add(float64(t.Jobs))
	m.free.begun.Add(uint64(t.Jobs))
	if t.Jobs == 0 {
		m.free.noJobs.Store(n.ID(), noJob{used: t.Used, at: m.d.nodes.Now()})
	} else {
		m.free.noJobs.Delete(n.ID())
	}
}

// classesFor returns the classes with waiting jobs that the node fits, under the configuration with
// this version.
func (m *matcher) classesFor(n *selection.Node, version uint64) (classes []string) {
	m.queues.byID.Range(func(id string, q *queue) bool {
		class := m.d.nodes.Class(q.job.Service, &q.job.Requirement)
		if class.ConfigVersion() != version {
			class = m.d.nodes.Settle(q.job.Service, &q.job.Requirement)
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
