package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// chooser is what a dispatcher asks of a picture of the fleet, by an interface as it does.
type chooser interface {
	Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node
	Now() int64
	SilenceLimit() time.Duration
}

// picture is a fleet that is chosen from while events are applied to it.
type picture interface {
	chooser
	// beats makes the next n heartbeat events as they come from Redis.
	beats(n int) []string
	// apply takes one over, decoding included; false when there is no room for it now.
	apply(message string) bool
	// drain waits until those that were taken over are applied.
	drain()
	// settle forgets those that were made and not taken over.
	settle(ctx context.Context) error
	stop()
}

// cachePicture is the product's.
type cachePicture struct {
	*fedCache
	nodes int
}

func (p *cachePicture) beats(n int) []string { return p.messages(n, heartbeats(p.nodes)) }

func (p *cachePicture) drain() {
	for len(p.subscriber.Messages()) > 0 {
		runtime.Gosched()
	}
}

func (p *cachePicture) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	_ = p.Stop(ctx) // nothing is under way
}

// Choose implements chooser.
func (p *cachePicture) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	return p.Class(service, r).Choose(dst, q, rnd)
}

// lockedFleet is a baseline.
type lockedFleet interface {
	Put(state *cell.NodeState)
	Heartbeat(node string, used int, status freeslot.Status, seenAt int64, resources string)
	Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node
}

// stateFleet is the lock-based picture that a replica can fall back to.
type stateFleet struct{ *locked.State }

// Choose implements lockedFleet.
func (s stateFleet) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	return s.Class(service, r).Choose(dst, q, rnd)
}

// lockedPicture is a baseline, with the events decoded as the cache does and the same coarse clock.
type lockedPicture struct {
	lockedFleet
	nodes   int
	origin  time.Time
	clock   atomic.Int64
	stopped chan struct{}
	ended   chan struct{}
}

// coarse is how late the clock may be, as the cache's.
const coarse = 20 * time.Millisecond

func newLockedPicture(fleet lockedFleet, states []cell.NodeState) *lockedPicture {
	p := &lockedPicture{lockedFleet: fleet, nodes: len(states), origin: time.Now(), stopped: make(chan struct{}), ended: make(chan struct{})}
	for i := range states {
		s := states[i] // it must not change any more
		p.Put(&s)
		p.Heartbeat(s.Node.ID, s.Used, s.Status, 0, "")
	}
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(coarse)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.clock.Store(int64(time.Since(p.origin)))
			case <-p.stopped:
				return
			}
		}
	}()
	return p
}

func (p *lockedPicture) Now() int64 { return p.clock.Load() }

func (*lockedPicture) SilenceLimit() time.Duration { return time.Hour }

func (p *lockedPicture) beats(n int) []string {
	event := heartbeats(p.nodes)
	out := make([]string, n)
	var buf []byte
	for i := range out {
		e := event(i)
		e.Revision = uint64(i + 1)
		buf = e.Append(buf[:0])
		out[i] = string(buf)
	}
	return out
}

func (p *lockedPicture) apply(message string) bool {
	e, err := events.Decode(message)
	if err != nil {
		panic(err) // made here
	}
	p.Heartbeat(e.Node, e.Used, e.Status, int64(time.Since(p.origin)), e.Body)
	return true
}

func (*lockedPicture) drain() {}

func (*lockedPicture) settle(context.Context) error { return nil }

func (p *lockedPicture) stop() {
	close(p.stopped)
	<-p.ended
}

// barePicture is the least that a choice can be: two nodes at random from a list behind an atomic pointer,
// and the less loaded of them. It looks at no requirement.
type barePicture struct {
	list atomic.Pointer[[]*bareNode]
}

type bareNode struct {
	used atomic.Int64
	_    [7]int64 // a cache line of its own, as nodes have
}

func newBarePicture(nodes int) *barePicture {
	list := make([]*bareNode, nodes)
	for i := range list {
		list[i] = new(bareNode)
		list[i].used.Store(int64(i % 4))
	}
	p := new(barePicture)
	p.list.Store(&list)
	return p
}
