package dispatch

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/logging"
)

// backlogSweeps is how many sweep intervals there are between two counts of the jobs that wait, each at a
// few commands a class of which some do.
const backlogSweeps = 5

// backlog says how much waits in each cell. A cell that does not answer has no values.
type backlog struct{ waiting, held, oldest *prometheus.GaugeVec }

func newBacklog() backlog {
	gauges := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"cell"})
	}
	return backlog{
		waiting: gauges("freeslot_waiting_jobs", "Jobs that wait for a slot, by cell. All replicas tell the same."),
		held:    gauges("freeslot_held_jobs", "Jobs that wait because a limit of their tenant or concurrency key holds them back, by cell."),
		oldest:  gauges("freeslot_oldest_waiting_seconds", "How long ago the oldest job that waits for a slot was submitted, by cell; 0 where none waits."),
	}
}

func (b *backlog) collectors() []prometheus.Collector {
	return []prometheus.Collector{b.waiting, b.held, b.oldest}
}

func (b *backlog) forget(cell string) {
	for _, g := range []*prometheus.GaugeVec{b.waiting, b.held, b.oldest} {
		g.DeleteLabelValues(cell)
	}
}

func (b *backlog) set(label string, queues []cell.Queue, held []cell.Held, now time.Time) {
	waiting, stopped, oldest := 0, 0, 0.0
	for i := range queues {
		waiting += queues[i].Waiting
		if at := queues[i].OldestMS; at > 0 {
			oldest = max(oldest, now.Sub(time.UnixMilli(at)).Seconds())
		}
	}
	for i := range held {
		stopped += held[i].Jobs
	}
	b.waiting.WithLabelValues(label).Set(float64(waiting))
	b.held.WithLabelValues(label).Set(float64(stopped))
	b.oldest.WithLabelValues(label).Set(oldest)
}

// countBacklog keeps the figures of the cell up to date.
func (c *client) countBacklog() {
	outage := logging.NewOutage(c.log, "backlog.count_failed", "backlog.counted_again")
	figures, label := &c.d.metrics.backlog, strconv.Itoa(c.cell.Index())
	count := func() {
		ctx, cancel := context.WithTimeout(c.d.ctx, ioTimeout)
		defer cancel()
		queues, err := c.cell.Queues(ctx)
		var held []cell.Held
		if err == nil {
			held, err = c.cell.Held(ctx)
		}
		if err == nil {
			outage.Over()
			figures.set(label, queues, held, time.Now())
			return
		}
		figures.forget(label)
		if c.d.ctx.Err() == nil {
			outage.Failed(err)
		}
	}
	count()
	c.tick(backlogSweeps*c.d.cfg.SweepInterval, nil, count)
}
