package dispatch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freeslot/freeslot/internal/cell"
)

// CellLoad is the last reading of the load of a cell's server.
type CellLoad struct {
	cell.ServerLoad
	// Took is how long the call took.
	Took time.Duration
}

// Loads returns the loads by cell, nil for a cell that did not answer the last time. It asks no
// one.
func (d *Dispatcher) Loads() []*CellLoad {
	loads := make([]*CellLoad, len(d.byCell))
	for i, c := range d.byCell {
		loads[i] = c.load.Load()
	}
	return loads
}

// Figures is what a dispatcher knows of its jobs, and of all cells that answer.
type Figures struct {
	// Placed, Queued and Refused count the jobs that this replica took or refused.
	Placed, Queued, Refused uint64
	// Assign has the times from a submit to its assignment, of jobs that did not wait.
	Assign prometheus.Histogram
	// Cells counts the cells that answer. The fields below are about them.
	Cells int
	// Ends counts the jobs of all replicas that have ended since this replica started, by
	// cell.EndStates, and Retries the attempts that failed and were followed by another one.
	Ends          [5]uint64
	Retries       uint64
	Waiting, Held int
	// OldestWait is how long the oldest waiting job has waited.
	OldestWait time.Duration
	// MemoryBytes is the memory in use of their servers, each server once.
	MemoryBytes int64
}

// Figures returns the current figures. It asks no one.
func (d *Dispatcher) Figures() Figures {
	a, now := &d.metrics.arrivals, time.Now()
	f := Figures{
		Placed: a.placed.Load(), Queued: a.queued.Load(), Refused: a.refused.Load(), Assign: d.metrics.assign,
	}
	servers := make(map[string]int64)
	for _, c := range d.byCell {
		for i := range f.Ends {
			f.Ends[i] += c.ended[i].Load()
		}
		f.Retries += c.retried.Load()
		load, backlog := c.load.Load(), c.backlog.Load()
		if load == nil || backlog == nil {
			continue
		}
		f.Cells++
		f.Waiting += backlog.waiting
		f.Held += backlog.held
		f.OldestWait = max(f.OldestWait, backlog.oldest(now))
		servers[load.Run] = load.UsedBytes
	}
	for _, used := range servers {
		f.MemoryBytes += used
	}
	return f
}
