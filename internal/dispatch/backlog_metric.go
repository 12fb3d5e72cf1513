package dispatch

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	if b.succeeded(b.outage, err) {
		m.setBacklog(label, queues, full, time.Now())
		return
	}
	for _, g := range []*prometheus.GaugeVec{m.waiting, m.held, m.oldest} {
		g.DeleteLabelValues(label)
	}
}

func (m *metrics) setBacklog(label string, queues []cell.Queue, full []cell.FullLimit, now time.Time) {
	waiting, stopped, oldest := 0, 0, 0.0
	for i := range queues {
		waiting += queues[i].Waiting
		if at := queues[i].OldestMS; at > 0 {
			oldest = max(oldest, now.Sub(time.UnixMilli(at)).Seconds())
		}
	}
	for i := range full {
		stopped += full[i].Jobs
	}
	m.waiting.WithLabelValues(label).Set(float64(waiting))
	m.held.WithLabelValues(label).Set(float64(stopped))
	m.oldest.WithLabelValues(label).Set(oldest)
}
