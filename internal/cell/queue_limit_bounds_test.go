package cell

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestGatesForgotten: a key that no job has any more leaves nothing behind, whether its jobs ran, were
// refused or cancelled: keys can be as many as jobs.
func TestGatesForgotten(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		limited := func(key string) func(*Submission) {
			return limitedBy(KeyLimit("t1", key, 1), WaitingLimit("t1", 3))
		}
		runs := r.waits("", limited("a"))
		r.take("n1")
		second, third, cancelled := r.waits("", limited("a")), r.waits("", limited("b")), r.waits("", limited("c"))
		refused := submission("")
		limited("d")(&refused)
		if res := r.EnqueueAll(r.ctx(), []Submission{refused})[0]; freeslot.CodeOf(res.Err) != freeslot.CodeOverloaded {
			t.Fatalf("%+v; want freeslot.CodeOf(res.Err) == freeslot.CodeOverloaded", res)
		}
		if _, err := r.Cancel(r.ctx(), "", cancelled); err != nil {
			t.Fatal(err)
		}
		r.sound()
		if got := r.hash(r.l.Limits()); len(got) != 3 {
			t.Errorf("limits %v, expected two of keys and one of a tenant", got)
		}
		r.end("n1", epoch, runs)
		r.take("n1")
		r.sound()
		for _, job := range []string{second, third} {
			r.end("n1", epoch, job)
			r.sound()
		}
		if got := r.hash(r.l.Limits()); len(got) != 1 {
			t.Errorf("limits %v are kept, expected one of the tenant at most", got)
		}
		r.check()
		if r.exists(r.l.Limits()) {
			t.Error("a limit without jobs is kept")
		}
	})
}

// TestUnparkNoMore: however many end in one call, no more come back than there is room for.
func TestUnparkNoMore(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const n = 12
		epoch := r.register(testNode("n1", n))
		limited := limitedBy(RunningLimit("t1", n))
		for range n {
			r.waits("", limited)
		}
		if got := r.take("n1"); got != n {
			t.Fatalf("%d began", got)
		}
		for range 4 * n {
			r.waits("", limited)
		}
		r.do("DEL", r.l.Serves("n1")) // nobody gets the slots yet
		running, _ := r.slots("n1")
		var ends []Completion
		for job := range running {
			ends = append(ends, succeed("n1", epoch, job))
		}
		if out, err := r.complete(r.ctx(), ends); err != nil || out[0] != Completed {
			t.Fatal(out, err)
		}
		if got := len(r.line(echo)); got != n {
			t.Errorf("%d jobs came back to their queue, %d have ended", got, n)
		}
		r.sound()
	})
}

// TestHeldBackRepeated: a submission that comes again does not change the place of a job that is held back.
func TestHeldBackRepeated(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 4))
		g := RunningLimit("t1", 1)
		r.waits("", limitedBy(g))
		r.take("n1")
		s := submission("")
		s.Limits = []Limit{g}
		r.enqueued(s)
		before := r.scores(r.l.LimitedBy(g.name))
		now := r.nowMS()
		later := func() bool { return r.nowMS() > now+1 } // by Redis' clock
		for !later() {
			runtime.Gosched()
		}
		r.enqueued(s)
		for job, score := range r.scores(r.l.LimitedBy(g.name)) {
			if before[job] != score {
				t.Errorf("%s moved from %.0f to %.0f", job, before[job], score)
			}
		}
		r.do("DEL", r.l.Counted(g.name)) // it is open, which nobody has noticed yet
		r.enqueued(s)
		if len(r.line(echo))+len(r.scores(r.l.LimitedBy(g.name))) != 1 {
			t.Errorf("it waits in %v and is held back in %v", r.line(echo), r.scores(r.l.LimitedBy(g.name)))
		}
	})
}

// TestGatesOutOfMemory: what is counted is put right also where Redis refuses writes.
func TestGatesOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.register(testNode("n1", 4))
	busy, open := KeyLimit("t1", "busy", 1), KeyLimit("t1", "open", 1)
	r.waits("", limitedBy(busy))
	first := r.waits("", limitedBy(open))
	r.take("n1")
	r.waits("", limitedBy(busy))
	held := r.waits("", limitedBy(open))
	r.do("DEL", r.l.Job(first)) // by an operator: it counts still
	r.do("CONFIG", "SET", "maxmemory", "1")
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	if n := r.check(); n != 1 || len(r.line(echo)) != 1 || r.line(echo)[0] != held {
		t.Errorf("%d classes, %v wait, expected %s", n, r.line(echo), held)
	}
	r.check()
}

// TestGateLimitEdited: what an operator made no number of the limit is the job's own.
func TestGateLimitEdited(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		g := KeyLimit("t1", "k", 1)
		for _, text := range []string{"nan", "inf", "-5", "many", ""} {
			first := r.waits("", limitedBy(g))
			r.take("n1")
			held := r.waits("", limitedBy(g))
			r.do("HSET", r.l.Limits(), g.name, text)
			r.end("n1", epoch, first)
			r.check()
			r.take("n1")
			if s := r.status(held); s.State != freeslot.StateRunning {
				t.Fatalf("%q: %+v; want s.State == freeslot.StateRunning", text, s)
			}
			r.end("n1", epoch, held)
		}
	})
}

// TestMoveLimitNames: a tenant whose name ends like a limit does counts nowhere else.
func TestMoveLimitNames(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		m.SetGuide(&Guide{
			Home: func(string, *freeslot.Job) (int, bool) { return 2, true },
			Limits: func(tenant string, _ *freeslot.Job, _ int) []Limit {
				return []Limit{KeyLimit(tenant, "k", 1), WaitingLimit(tenant, 9)}
			},
		})
		m.waitsIn(0, "", of("new", 1), func(s *Submission) {
			s.Job.ConcurrencyKey, s.Limits = "k", []Limit{KeyLimit("new", "k", 1), WaitingLimit("new", 9)}
		})
		m.begin(0, 1, 1)
		m.driven(0, 0)
		m.later()
		m.driven(0, 1)
		r := m.rigs[2]
		for _, key := range r.keys() {
			if strings.Contains(key, ":gate:") && key != r.l.Counted("w:new") {
				t.Errorf("it counts at %s", key)
			}
		}
		m.sound()
	})
}

// TestMoveDropped: a job that has moved is dropped where it is, by the id that its client knows, and does not come
// a second time from where it was.
func TestMoveDropped(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		id := m.waitsIn(0, "", timeout(time.Hour.Milliseconds()))
		m.begin(0, 1, 1)
		found, _, err := m.At(0).moves(m.ctx(), m.At(0).layout.Moves(), 0, 10)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if _, err := m.At(1).moveIn(m.ctx(), []*Move{&found[0]}, 1e15, nil); err != nil {
			t.Fatal(err)
		}
		m.runsIn(1, id) // before the first cell knows that it has come
		if s, err := m.Drop(m.ctx(), "", MovedID(id, 1)); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Errorf("its move is not settled: %+v, %v", s, err)
		}
		m.driven(0, 0)
		if s, err := m.Drop(m.ctx(), "", id); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Errorf("somebody may be about to bring it: %+v, %v", s, err)
		}
		if s := m.job(id); s.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
		}
		at := m.rigs[1]
		at.do("HSET", at.l.Job(MovedID(id, 1)), "finished_at_ms", "1") // long ago
		if s, err := m.Drop(m.ctx(), "", id); err != nil || s.State != freeslot.StateSucceeded || s.ID != id {
			t.Errorf("%+v, %v, expected state %s, id %v", s, err, freeslot.StateSucceeded, id)
		}
		if s, err := m.Job(m.ctx(), "", id); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Errorf("%+v, %v; want freeslot.CodeOf(err) == freeslot.CodeNotFound", s, err)
		}
		m.later()
		m.driven(0, 0)
		m.sound()
	})
}

// TestHeldBackBounded: as many jobs can be held back by a limit as can wait in a queue.
func TestHeldBackBounded(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.cfg.WaitingLimit = 3
		epoch := r.register(testNode("n1", 4))
		limited := limitedBy(KeyLimit("t1", "k", 1))
		first := r.waits("", limited)
		r.take("n1")
		for range 3 {
			r.waits("", limited)
		}
		s := submission("")
		limited(&s)
		if res := r.EnqueueAll(r.ctx(), []Submission{s})[0]; freeslot.CodeOf(res.Err) != freeslot.CodeOverloaded {
			t.Errorf("one more: %+v", res)
		}
		later := r.later()
		limited(&later)
		r.enqueued(later) // which is no more than what is due later
		other := submission("")
		limitedBy(KeyLimit("t1", "other", 1))(&other)
		r.enqueued(other)
		r.sound()
		r.end("n1", epoch, first)
		r.enqueued(s)
		r.sound()
	})
}
