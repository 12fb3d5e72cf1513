package dispatch

import (
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// chooseAlike chooses nodes for new jobs that fit the same nodes, in groups: a node costs the
// script as much as several jobs, and its agent reports jobs together that came together. Such jobs
// are in one call, or come alone while others are under way. Jobs that get no node here are left to
// chooseNode.
func (d *Dispatcher) chooseAlike(jobs []*placement) {
	if len(jobs) == 1 && d.submits.Load() <= 1 {
		return
	}
	for _, p := range jobs {
		job := p.request.Job
		if p.class == nil && job.AffinityKey == "" && !d.mustEnqueue(&p.request) {
			p.class = d.nodes.Class(job.Service, &job.Requirement)
			p.mayJoin()
		}
	}
	var room [selection.MaxBatch]*placement
	for i, first := range jobs {
		if first.stage != stageAlike {
			continue
		}
		alike := room[:0]
		for _, p := range jobs[i:] {
			if len(alike) < len(room) && p.stage == stageAlike && p.class == first.class &&
				p.request.Job.SlotCount() == first.request.Job.SlotCount() {
				p.leave()
				alike = append(alike, p)
			}
		}
		if len(jobs) == 1 {
			d.joinGroup(first, time.Now())
		} else if len(alike) > 1 {
			d.placeTogether(alike)
		}
	}
}

// placeTogether chooses nodes for jobs of one call that are alike.
func (d *Dispatcher) placeTogether(jobs []*placement) {
	var room groupRoom
	begin, grouped, q := time.Now(), 0, d.alikeQuery(jobs[0])
	g := chooseGroups(room[:0], jobs[0].class, len(jobs), &q)
	for grouped < len(jobs) && d.place(jobs[grouped], &g, &q) {
		grouped++
	}
	took := time.Since(begin).Seconds()
	for range grouped {
		d.metrics.selection.Observe(took / float64(grouped))
	}
}

// alikeQuery returns the query for new jobs that are alike.
func (d *Dispatcher) alikeQuery(p *placement) selection.Query {
	q := d.query(p)
	q.Skip |= d.waitingCells(p.class)
	return q
}

// place puts a job into the next free place of the groups, and takes its slots in the cache. It
// returns false if there is none.
func (d *Dispatcher) place(p *placement, g *groups, q *selection.Query) bool {
	for ; g.left(); g.at++ {
		group := &g.list[g.at]
		if !p.take(group.Node) {
			continue // other jobs have filled it
		}
		p.candidates = selection.AppendCandidates(p.room[:0], g.list, g.at, q.Want)
		p.to = d.byCell[group.Node.Cell()]
		p.join()
		if group.Jobs--; group.Jobs == 0 {
			g.at++
		}
		return true
	}
	return false
}

// joinGroup gives a job that came alone a place in open groups. It opens new groups for as many
// jobs as are under way.
func (d *Dispatcher) joinGroup(p *placement, now time.Time) {
	slots := p.request.Job.SlotCount()
	o := d.openGroups.place(p.class, slots)
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := now.Before(o.until)
	if fresh && o.few && !o.left() {
		return
	}
	q := d.alikeQuery(p)
	// A class belongs to one configuration, so no group of an older configuration is used.
	same := o.class == p.class && o.slots == slots && o.skip == q.Skip
	switch {
	case !fresh || same && !o.left():
		o.class, o.slots, o.skip, o.until = p.class, slots, q.Skip, now.Add(openLife)
		jobs := min(int(d.submits.Load()), selection.MaxBatch)
		o.groups = chooseGroups(o.room[:0], p.class, jobs, &q)
		o.few = 2*o.leaveBusy() < jobs
	case !same:
		return
	}
	if d.place(p, &o.groups, &q) {
		d.metrics.selection.Observe(time.Since(now).Seconds())
	}
}
