package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// paused is a configuration that pauses services.
func paused(version uint64, services ...string) *selection.Config {
	return &selection.Config{Version: version, Generation: "g", Paused: &selection.Paused{Services: services}}
}

func (r *rig) presence() *presence.Store { return presence.NewStore(r.cell.Runner()) }

// here makes replicas known to each other.
func (r *rig) here(reps ...*replica) {
	r.t.Helper()
	for _, rep := range reps {
		if _, err := r.presence().Present(deadline(r.t), presence.Replica{Name: rep.Replica()}, time.Hour); err != nil {
			r.t.Fatal(err)
		}
	}
}

// goBy gives a replica another configuration, as its follower does.
func (rep *replica) goBy(cfg *selection.Config) {
	rep.cache.SetConfig(cfg)
	rep.ConfigChanged()
}

func (rep *replica) confirmed(version uint64) {
	rep.rig.t.Helper()
	if behind, err := rep.Confirm(deadline(rep.rig.t), version, "g"); err != nil || len(behind) > 0 {
		rep.rig.t.Fatalf("%v are behind, %v", behind, err)
	}
}

// swept returns when the loop has swept the queues once more. It takes the second token after the
// sweep under way, the third after one that began later.
func (c *cellClient) swept(t *testing.T) {
	t.Helper()
	for range 3 {
		select {
		case c.sweeps <- struct{}{}:
		case <-deadline(t).Done():
			t.Fatal("no sweep")
		}
	}
}

func ofService(name string) *freeslot.Job { return &freeslot.Job{Service: name} }

// Jobs of a paused service wait beside free nodes, running jobs go on, and all begin on resume.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 3))
		rep := r.replica("r1", idle)
		r.here(rep)
		sink := newRecorder(t)
		before := rep.mustWait(job(), 0, sink)
		rep.goBy(paused(1, "echo"))
		rep.confirmed(1)
		first := rep.mustWait(job(), 1, sink)
		second := rep.mustWait(&freeslot.Job{Service: "echo", Slots: 2}, 2, sink)
		keyed := rep.mustWait(&freeslot.Job{Service: "echo", IdempotencyKey: "k"}, 3, sink)
		if s, err := rep.Job(deadline(t), "", first); err != nil || s.HeldBy != freeslot.HeldByPause || s.Position != 1 {
			t.Errorf("%+v, %v, expected the first of those that wait, held by the pause", s, err)
		}
		// The hand-over of the slot that becomes free stops too.
		a.attempt(before, 1)
		_ = sink.result(before)
		rep.byCell[0].swept(t)
		for _, id := range []string{first, second, keyed} {
			if s, err := rep.Job(deadline(t), tenant, id); err != nil || s.State != freeslot.StateWaiting {
				t.Errorf("%+v, %v; want no error, s.State == freeslot.StateWaiting", s, err)
			}
		}
		queues, _, err := rep.Queues(deadline(t))
		if err != nil || len(queues) != 1 || queues[0].Waiting != 3 || !queues[0].Paused() || queues[0].PausedBy != "service echo" ||
			queues[0].Fits != 1 || queues[0].First != first || queues[0].OldestMS == 0 || queues[0].Service != "echo" {
			t.Errorf(`%+v, %v; want no error, len(queues) == 1, queues[0].Waiting == 3, queues[0].Paused(), queues[0].PausedBy == "service echo", queues[0].Fits == 1, queues[0].First == %v, queues[0].OldestMS != 0, queues[0].Service == "echo"`, queues, err, first)
		}
		rep.goBy(&selection.Config{Version: 2, Generation: "g"})
		for _, id := range []string{first, second} {
			sink.begun(id, 1)
			a.attempt(id, 1)
		}
		sink.begun(keyed, 1)
	})
}

// The error for a misspelt pool differs from the error for a pool without a fitting node.
func TestNoSuchPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	n := node("n1", 1)
	n.Pools = []string{"named"}
	r.agent(n)
	rep := r.replica("r1", idle)
	rep.goBy(&selection.Config{Version: 1, Enabled: true, Pools: selection.Pools{{ID: "configured", Members: []string{"n2"}}}})
	for pool, unknown := range map[string]bool{"named": false, "configured": false, "nmaed": true} {
		_, err := rep.place(&freeslot.Job{Service: "other", Requirement: freeslot.Requirement{Pool: pool}}, nil)
		if freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode || strings.Contains(err.Error(), "there is no pool "+pool) != unknown {
			t.Errorf("pool %s: %v", pool, err)
		}
	}
}

// A job that no node fits is refused as ever, whatever is paused.
func TestPauseIsNoMismatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.replica("r1", idle)
	rep.goBy(paused(1, "echo", "other"))
	if _, err := rep.place(ofService("other"), nil); freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode {
		t.Error(err)
	}
	if _, err := rep.place(&freeslot.Job{Service: "echo", Slots: 2}, nil); freeslot.CodeOf(err) != freeslot.CodeNoMatchingNode {
		t.Error(err)
	}
	rep.mustWait(job(), 1, nil)
}

// After a pause is confirmed, no job of the service begins, whatever completes or is submitted
// meanwhile. On resume all begin.
func TestPauseRace(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newCells(t, 2, redis)
		for _, n := range append(r.nodesIn(0, 2, 2), r.nodesIn(1, 2, 2)...) {
			n.Services = append(n.Services, freeslot.Service{Name: "other"})
			r.agent(n).serve(func(cell.Dispatch) string { return `1` })
		}
		var reps []*replica
		for i := range 3 {
			reps = append(reps, r.replica(fmt.Sprintf("r%d", i), func(c *replicaConfig) { c.dispatch.SweepInterval = 20 * time.Millisecond }))
		}
		r.here(reps...)
		load := r.load(reps)
		for version := uint64(1); version <= 5; version += 2 {
			load.wait(60, 60)
			for i := range reps { // in another order each time
				reps[(i+int(version))%len(reps)].goBy(paused(version, "echo"))
			}
			reps[version%3].confirmed(version)
			at := r.nowMS()
			load.wait(0, 60) // the others go on
			load.check(at)
			load.add(5) // more of them come, and wait
			for _, rep := range reps {
				rep.goBy(&selection.Config{Version: version + 1, Generation: "g"})
			}
		}
		load.end()
	})
}

const (
	// perCall is how many jobs one call of a load submits.
	perCall = 4
	// openCalls is how many calls of a load, for each service, have jobs that have not ended: so
	// many that some jobs always wait, and so few that all end in time on a busy machine.
	openCalls = 10
)

// load submits jobs of two services by all replicas, and keeps the ids of the first.
type load struct {
	r         *rig
	cancel    context.CancelFunc
	running   sync.WaitGroup
	submitted [2]atomic.Int64
	// room has a token for each call that may be made. calls counts all tokens, those of open calls
	// too.
	room  [2]chan struct{}
	calls [2]int
	mu    sync.Mutex
	ids   []string
}

// openCall is the sink of one call of a load. Once all its jobs have ended there is room for
// another call.
type openCall struct {
	left atomic.Int64
	room chan<- struct{}
}

func (*openCall) Assigned(Assignment)                {}
func (*openCall) Progress(string, freeslot.Progress) {}
func (*openCall) Detached(string)                    {}
func (o *openCall) Result(freeslot.JobStatus) {
	if o.left.Add(-1) == 0 {
		o.room <- struct{}{}
	}
}

func (r *rig) load(reps []*replica) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{r: r, cancel: cancel}
	for service := range l.room {
		l.room[service] = make(chan struct{}, 10*openCalls)
		l.more(service, openCalls)
	}
	for _, rep := range reps {
		for service, name := range []string{"echo", "other"} {
			l.running.Go(func() {
				for {
					select {
					case <-l.room[service]:
					case <-ctx.Done():
						return
					}
					reqs := make([]Request, perCall)
					for i := range reqs {
						reqs[i] = Request{Tenant: tenant, Job: ofService(name)}
					}
					open := &openCall{room: l.room[service]}
					open.left.Store(perCall)
					rep.Submit(context.Background(), reqs, open, func(_ int, a Accepted, err error) {
						if err != nil {
							r.t.Errorf("submit: %v", err)
							return
						}
						l.submitted[service].Add(1)
						if service == 0 {
							l.mu.Lock()
							l.ids = append(l.ids, a.JobID)
							l.mu.Unlock()
						}
					})
				}
			})
		}
	}
	r.t.Cleanup(func() { cancel(); l.running.Wait() })
	return l
}

// more makes room for so many more calls of a service.
func (l *load) more(service, calls int) {
	l.calls[service] += calls
	for range calls {
		l.room[service] <- struct{}{}
	}
}

// add waits until so many more calls of the first service are accepted, although none of its jobs
// ends.
func (l *load) add(calls int) {
	l.r.t.Helper()
	until := l.submitted[0].Load() + int64(calls*perCall)
	l.more(0, calls)
	l.await(0, until)
}

// wait waits until so many more of each service are accepted.
func (l *load) wait(more ...int64) {
	l.r.t.Helper()
	for service, n := range more {
		l.await(service, l.submitted[service].Load()+n)
	}
}

func (l *load) await(service int, until int64) {
	l.r.t.Helper()
	waittest.Until(l.r.t, "submits", func() bool { return l.submitted[service].Load() >= until })
}

func (l *load) statuses() []freeslot.JobStatus {
	l.r.t.Helper()
	l.mu.Lock()
	ids := slices.Clone(l.ids)
	l.mu.Unlock()
	var all []freeslot.JobStatus
	for part := range slices.Chunk(ids, 200) {
		jobs, failed := l.r.set.JobsByID(deadline(l.r.t), part)
		if failed != nil || len(jobs) != len(part) {
			l.r.t.Fatalf("%d jobs of %d, %v", len(jobs), len(part), failed)
		}
		all = append(all, jobs...)
	}
	return all
}

// check fails for every job that began after at.
func (l *load) check(at int64) {
	l.r.t.Helper()
	waiting := 0
	for _, s := range l.statuses() {
		if s.AssignedAtMS > at {
			l.r.t.Errorf("job %s began %d ms after the pause was confirmed", s.ID, s.AssignedAtMS-at)
		}
		if s.State == freeslot.StateWaiting {
			waiting++
		}
	}
	if waiting == 0 {
		l.r.t.Error("no job waits")
	}
}

// end submits no more and waits until all are done.
func (l *load) end() {
	l.r.t.Helper()
	l.cancel()
	l.running.Wait()
	for service, room := range l.room {
		for range l.calls[service] {
			receive(l.r.t, "all jobs done", room)
		}
	}
	for _, s := range l.statuses() {
		if s.State != freeslot.StateSucceeded {
			l.r.t.Errorf("job %s is %s", s.ID, s.State)
		}
	}
}

// nowMS is Redis' clock.
func (r *rig) nowMS() int64 {
	r.t.Helper()
	latest := int64(0)
	for _, c := range r.clients[0].Nodes() {
		at, err := c.Do(deadline(r.t), c.B().Time().Build()).AsStrSlice()
		var s, us int64
		if err == nil {
			_, err = fmt.Sscan(at[0]+" "+at[1], &s, &us)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		latest = max(latest, s*1000+us/1000)
	}
	return latest
}

// A replica that does not report that it follows a pause is named, until it does.
func TestConfirmNamesWhoIsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	x, y := r.replica("x", idle), r.replica("y", idle)
	r.here(x, y)
	if _, err := r.presence().Present(deadline(t), presence.Replica{Name: "older"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	x.goBy(paused(7, "echo"))
	behind := func() []string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		names, _ := x.Confirm(ctx, 7, "g") // a busy machine may not answer in time
		return names
	}
	waittest.Until(t, "x follows", func() bool { return slices.Equal(behind(), []string{"older", "y"}) })
	y.goBy(paused(8))
	waittest.Until(t, "y follows", func() bool { return slices.Equal(behind(), []string{"older"}) })
	if err := r.presence().Leave(deadline(t), "older", time.Hour); err != nil {
		t.Fatal(err)
	}
	x.confirmed(7)
	// Versions of another counter prove nothing.
	waittest.Until(t, "both to be behind", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		names, err := x.Confirm(ctx, 1, "h")
		if err == nil && len(names) == 0 {
			t.Fatal("it is confirmed")
		}
		return err == nil && len(names) == 2
	})
}

// pass waits for what entered before it, and not for what enters after it.
func TestFence(t *testing.T) {
	t.Parallel()
	var f fence
	first := f.enter()
	f.hold(first, 1)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := f.pass(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	later := f.enter()
	passed := make(chan error, 1)
	go func() { passed <- f.pass(deadline(t)) }()
	f.leave(first)
	select {
	case err := <-passed:
		t.Fatalf("passed beside one that entered before, %v", err)
	default:
	}
	f.leave(first)
	f.leave(later)
	if err := receive(t, "the pass", passed); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := f.pass(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// When a pass is over, nothing is left that entered before it began, however many enter.
func TestFenceRace(t *testing.T) {
	t.Parallel()
	var f fence
	var value, passes atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for passes.Load() < 200 {
				age := f.enter()
				before := value.Load()
				if now := value.Load(); now-before > 1 { // one pass may have begun meanwhile, but not have ended
					t.Errorf("two passes were over beside one that entered before")
				}
				f.leave(age)
			}
		})
	}
	for range 200 {
		if err := f.pass(deadline(t)); err != nil {
			t.Error(err)
		}
		value.Add(1)
		passes.Add(1)
	}
	workers.Wait()
}

// A job that was offered to nodes before a pause delays its confirmation until the call is over.
func TestConfirmWaitsForCallsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 2))
	chosen, gate := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	rep := r.replica("r1", idle, func(c *replicaConfig) {
		// The pause comes between the choice and the call.
		c.dispatch.Weight = func(string) int {
			if held.CompareAndSwap(false, true) {
				close(chosen)
				<-gate
			}
			return 1
		}
	})
	placed := make(chan string, 1)
	go rep.Submit(deadline(t), []Request{{Tenant: tenant, Job: job()}}, nil, func(_ int, a Accepted, err error) {
		if err != nil {
			t.Error(err)
		}
		placed <- a.JobID
	})
	_ = receive(t, "the choice", chosen)
	r.here(rep)
	rep.goBy(paused(1, "echo"))
	waittest.Until(t, "the replica to be behind", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		behind, err := rep.Confirm(ctx, 1, "g")
		if err == nil && len(behind) == 0 {
			t.Fatal("it is confirmed")
		}
		return err == nil && slices.Equal(behind, []string{"r1"})
	})
	close(gate)
	rep.confirmed(1)
	if s, err := rep.Job(deadline(t), tenant, receive(t, "the answer", placed)); err != nil || s.State != freeslot.StateRunning {
		t.Errorf("%+v, %v; want no error, s.State == freeslot.StateRunning", s, err)
	}
}

// A job whose first call was before a pause is offered to no node by the next one.
func TestPauseBetweenCalls(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]*freeslot.Job{"plain": job(), "keyed": {Service: "echo", IdempotencyKey: "k"}} {
		for _, repeat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s repeat %t", name, repeat), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, redistest.Shared(t))
				r.agent(node("n1", 2))
				rep := r.replica("r1", idle)
				p := &placement{request: Request{Tenant: tenant, Job: request}}
				if err := rep.chooseNode(p); err != nil || len(p.candidates) != 1 {
					t.Fatalf("%+v, %v; want no error, len(p.candidates) == 1", p, err)
				}
				p.assignID()
				if !repeat {
					p.giveBack()
				}
				rep.goBy(paused(1, "echo"))
				if repeat {
					p.outcomeUnknown(errAway)
				}
				if err := rep.chooseNode(p); err != nil || len(p.candidates) != 0 || !p.enqueues() || p.to == nil {
					t.Errorf("%+v, %v; want no error, len(p.candidates) == 0, p.enqueues(), p.to != nil", p, err)
				}
				rep.settled()
			})
		}
	}
}

// A refusal by Redis is no answer yet: Confirm waits on, and in the end returns that nothing is
// known.
func TestConfirmOutlastsAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	x := r.replica("x")
	x.goBy(paused(7, "echo"))
	r.do("RPUSH", script.Layout(r.layout).Key("replicas", ""), "of another type")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if behind, err := x.Confirm(ctx, 7, "g"); err == nil || ctx.Err() == nil {
		t.Errorf("%v, %v before the time was over", behind, err)
	}
	r.do("DEL", script.Layout(r.layout).Key("replicas", ""))
	r.here(x)
	x.confirmed(7)
}
