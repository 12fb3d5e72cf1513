package dispatch

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// backlogSweeps is the number of sweep intervals between two counts of the waiting jobs. A count
// costs a few commands for each queue.
const backlogSweeps = 5

// backlog is the loop that keeps the metrics of the cell's waiting jobs up to date. While the cell
// does not answer, they have no values.
type backlog struct {
	*cellClient
	outage *logging.Outage
}

func newBacklog(c *cellClient) *backlog {
	return &backlog{cellClient: c, outage: logging.NewOutage(c.log, "backlog.count_failed", "backlog.counted_again")}
}

func (b *backlog) run() {
	b.runOnce()
	b.d.tick(backlogSweeps*b.d.cfg.SweepInterval, nil, b.runOnce)
}

func (b *backlog) runOnce() {
	ctx, cancel := b.d.timeout()
	defer cancel()
	queues, err := b.cell.Queues(ctx)
	var full []cell.FullLimit
	if err == nil {
		full, err = b.cell.FullLimits(ctx)
	}
	m, label := b.d.metrics, strconv.Itoa(b.cell.Index())
	var due []cell.DueQueue
	if err == nil {
		due, err = b.cell.DueBy(ctx, time.Now().Add(DueWithin))
	}
	if b.succeeded(b.outage, err) {
		count := countBacklog(queues, full)
		count.pools, count.kinds = b.byPool(queues), b.byKind(queues, due)
		b.cellClient.backlog.Store(&count)
		m.setBacklog(label, &count, time.Now())
		return
	}
	b.cellClient.backlog.Store(nil)
	for _, g := range []*prometheus.GaugeVec{m.waiting, m.held, m.oldest} {
		g.DeleteLabelValues(label)
	}
}

// backlogCount counts the jobs of a cell that wait.
type backlogCount struct {
	waiting, held int
	// oldestMS is when the oldest one was submitted, in milliseconds since 1970; 0 if none waits.
	oldestMS int64
	pools    map[string]PoolBacklog
	kinds    map[Kind]KindBacklog
}

func countBacklog(queues []cell.Queue, full []cell.FullLimit) (n backlogCount) {
	for i := range queues {
		n.waiting += queues[i].Waiting
		if at := queues[i].OldestMS; at > 0 && (n.oldestMS == 0 || at < n.oldestMS) {
			n.oldestMS = at
		}
	}
	for i := range full {
		n.held += full[i].Jobs
	}
	return n
}

// PoolBacklog counts the waiting jobs that ask for a pool.
type PoolBacklog struct {
	Waiting int
	// OldestMS is when the oldest one was submitted, in milliseconds since 1970.
	OldestMS int64
}

// Plus returns the sum of two counts.
func (p PoolBacklog) Plus(o PoolBacklog) PoolBacklog {
	if p.OldestMS == 0 || o.OldestMS != 0 && o.OldestMS < p.OldestMS {
		p.OldestMS = o.OldestMS
	}
	p.Waiting += o.Waiting
	return p
}

// byPool divides the waiting jobs by the pool that they ask for; "" if they ask for none.
func (b *backlog) byPool(queues []cell.Queue) map[string]PoolBacklog {
	pools := make(map[string]PoolBacklog)
	for i := range queues {
		q := &queues[i]
		job, _ := b.jobOf(q.Class)
		pool := job.Requirement.Pool
		pools[pool] = pools[pool].Plus(PoolBacklog{q.Waiting, q.OldestMS})
	}
	return pools
}

// jobOf returns a job with the service and the requirement of a class; false if this release cannot
// read them.
func (b *backlog) jobOf(of cell.Class) (freeslot.Job, bool) {
	if known, ok := b.queues.byID.Load(of.ID); ok {
		return known.job, true
	}
	job, err := decodeClass(of.Definition)
	return job, err == nil
}

// PoolBacklogs returns the waiting jobs of all cells that answer, by the pool that they ask for; ""
// for none. It asks no one. It returns nil if no cell answers.
func (d *Dispatcher) PoolBacklogs() map[string]PoolBacklog {
	var all map[string]PoolBacklog
	for _, c := range d.byCell {
		count := c.backlog.Load()
		if count == nil {
			continue
		}
		if all == nil {
			all = make(map[string]PoolBacklog)
		}
		for pool, n := range count.pools {
			all[pool] = all[pool].Plus(n)
		}
	}
	return all
}

// oldest returns how long the oldest job has waited.
func (n *backlogCount) oldest(now time.Time) time.Duration {
	if n.oldestMS == 0 {
		return 0
	}
	return max(now.Sub(time.UnixMilli(n.oldestMS)), 0)
}

func (m *metrics) setBacklog(label string, n *backlogCount, now time.Time) {
	m.waiting.WithLabelValues(label).Set(float64(n.waiting))
	m.held.WithLabelValues(label).Set(float64(n.held))
	m.oldest.WithLabelValues(label).Set(n.oldest(now).Seconds())
}
