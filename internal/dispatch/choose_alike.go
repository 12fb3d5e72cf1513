package dispatch

import (
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// chooseAlike chooses nodes for the new jobs of a call that fit the same nodes, in groups: a node
// costs the script as much as several jobs, and its agent reports jobs together that came together.
// Jobs that get no node here are left to chooseNode.
func (d *Dispatcher) chooseAlike(jobs []*placement) {
	if len(jobs) < 2 {
		return
	}
	for _, p := range jobs {
		job := p.request.Job
		if p.class == nil && job.AffinityKey == "" && !d.mustEnqueue(&p.request) {
			p.class, p.ungrouped = d.nodes.Class(job.Service, &job.Requirement), true
		}
	}
	var room [selection.MaxBatch]*placement
	for i, first := range jobs {
		if !first.ungrouped {
			continue
		}
		alike := room[:0]
		for _, p := range jobs[i:] {
			if len(alike) < len(room) && p.ungrouped && p.class == first.class && p.request.Job.SlotCount() == first.request.Job.SlotCount() {
				p.ungrouped = false
				alike = append(alike, p)
			}
		}
		if len(alike) > 1 {
			d.chooseGroups(alike)
		}
	}
}

// chooseGroups chooses nodes for jobs that are alike, and takes their slots in the cache.
func (d *Dispatcher) chooseGroups(jobs []*placement) {
	begin, grouped := time.Now(), 0
	class, slots, q := jobs[0].class, jobs[0].request.Job.SlotCount(), d.query(jobs[0])
	q.Skip |= d.waitingCells(class)
	var room [selection.MaxBatch + cell.MaxCandidates]selection.Group
	groups := class.Batch(room[:0], len(jobs), &q, selection.NewSource(rand.Uint64()))
	for i, g := range groups {
		for _, p := range jobs[:g.Jobs] {
			if p.grouped = g.Node.TryTake(slots); !p.grouped {
				break
			}
			p.candidates = selection.AppendCandidates(p.room[:0], groups, i, q.Want)
			p.to, p.taken = d.clients[g.Node.Cell()], true
			grouped++
		}
		jobs = jobs[g.Jobs:]
	}
	took := time.Since(begin).Seconds()
	for range grouped {
		d.metrics.selection.Observe(took / float64(grouped))
	}
}
