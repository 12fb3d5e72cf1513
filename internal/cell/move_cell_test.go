package cell

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A job keeps all that it is when it moves, and its clients the id that they know.
func TestMove(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		a, b := m.rigs[0], m.rigs[1]
		must(t, a.OpenReplies(m.ctx(), "r1"))
		must(t, b.OpenReplies(m.ctx(), "r1"))
		epoch := a.register(testNode("n", 1))
		id := m.waitsIn(0, "r1", priority(7), timeout(time.Hour.Milliseconds()), of("acme", 3))
		if a.take("n") != 1 {
			t.Fatal("it does not begin")
		}
		a.complete1(a.fails("n", epoch, id, Retry))
		before := m.job(id)
		if before.State != freeslot.StateWaiting || before.Failures != 1 || before.Error != nil {
			t.Fatalf("%+v; want before.State == freeslot.StateWaiting, before.Failures == 1, before.Error == nil", before)
		}
		m.sound()

		m.begin(0, 1, 1)
		m.sound()
		if s := m.job(id); s.State != freeslot.StateMoving || s.ID != id || s.DeadlineMS != before.DeadlineMS {
			t.Errorf("%+v; want s.State == freeslot.StateMoving, s.ID == %v, s.DeadlineMS == %v", s, id, before.DeadlineMS)
		}
		if got := m.listed(freeslot.StateMoving); !slices.Equal(got, []string{id}) {
			t.Errorf("listed: %v", got)
		}
		m.driven(0, 1)
		m.sound()
		s := m.job(id)
		if diff := cmp.Diff(before, s); diff != "" {
			t.Error(diff)
		}
		if s := m.job(MovedID(id, 1)); s.ID != id {
			t.Errorf("%+v; want s.ID == %v", s, id)
		}
		job, tenant, err := m.Spec(m.ctx(), id)
		if err != nil || tenant != "acme" || job.Service != "echo" {
			t.Errorf("%+v of %s, %v", job, tenant, err)
		}
		if _, err := m.Job(m.ctx(), "stranger", id); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Error(err)
		}
		if got := m.listed(""); !slices.Equal(got, []string{id}) {
			t.Errorf("listed: %v", got)
		}
		record := b.hash(b.l.Job(MovedID(id, 1)))
		if record["keep"] != "" || record["hop"] != "1" || record["known"] != id || record["reply_to"] != "r1" {
			t.Errorf(`%v; want record["keep"] == "", record["hop"] == "1", record["known"] == %v, record["reply_to"] == "r1"`, record, id)
		}
		m.driven(0, 0)
		m.runsIn(1, id)
		m.sound()
		if s = m.job(id); s.State != freeslot.StateSucceeded || s.Attempt != 2 || s.Failures != 1 || s.ID != id {
			t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Attempt == 2, s.Failures == 1, s.ID == %v", s, id)
		}
		told := b.told("r1")
		if n := len(told); n != 2 || told[0].Status.ID != MovedID(id, 1) || told[1].Status.State != freeslot.StateSucceeded {
			t.Errorf("told %+v", told)
		}
		if got := m.listed(""); !slices.Equal(got, []string{id}) {
			t.Errorf("listed: %v", got)
		}
		// What sends on goes with the job.
		m.later()
		m.driven(0, 0)
		m.sound()
		here, there := a.int("PTTL", a.l.Job(id)), b.int("PTTL", b.l.Job(MovedID(id, 1)))
		if here <= 0 || here > there+1000 || there < keptMS/2 {
			t.Errorf("the record of the job is kept for %d ms, what sends on for %d", there, here)
		}
		b.do("DEL", b.l.Job(MovedID(id, 1)))
		if _, err := m.Job(m.ctx(), "", id); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Error(err)
		}
	})
}

// Jobs keep their order, and stay that no node of the target takes, or whose time is over.
func TestMoveOrder(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		var want []string
		for range 3 {
			want = append(want, MovedID(m.waitsIn(0, ""), 2))
		}
		large, late := m.waitsIn(0, "", slots(3)), m.waitsIn(0, "", timeout(1000))
		m.rigs[0].pass(late)
		first := m.waitsIn(0, "", priority(9))
		got, err := m.At(0).BeginMoves(m.ctx(), echo, Target{Cell: 2, Slots: 2}, 0, 100)
		if err != nil || got != (Begun{Jobs: 4, Stayed: 2}) {
			t.Fatalf("%+v, %v, expected %+v", got, err, Begun{Jobs: 4, Stayed: 2})
		}
		m.driven(0, 4)
		m.sound()
		if line := m.rigs[2].line(echo); !slices.Equal(line, append([]string{MovedID(first, 2)}, want...)) {
			t.Errorf("%v, want %v before %v", line, first, want)
		}
		if s := m.job(large); s.State != freeslot.StateWaiting {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting", s)
		}
		if d := m.rigs[0].due(10); d.Expired != 1 {
			t.Errorf("%+v; want d.Expired == 1", d)
		}
		m.sound()
	})
}

// Pages of a queue: those that stay are left out, and the end is told.
func TestMovePages(t *testing.T) {
	t.Parallel()
	m := newMovers(t, redistest.Shared(t), 2)
	for range 3 {
		m.waitsIn(0, "", slots(3))
	}
	m.waitsIn(0, "")
	for i, want := range []Begun{{Stayed: 2, More: true}, {Jobs: 1, Stayed: 1, More: true}} {
		got, err := m.At(0).BeginMoves(m.ctx(), echo, Target{Cell: 1, Slots: 1}, 2*i, 2)
		if err != nil || got != want {
			t.Errorf("page %d: %+v, %v", i, got, err)
		}
	}
	m.sound()
}

// Back and forth: the id that the client knows leads to the job, however often it moves.
func TestMoveBack(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		id := m.waitsIn(0, "")
		for i, step := range [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 1}, {1, 0}, {0, 1}} {
			m.arrives(step[0], step[1], 1)
			m.sound()
			for cell := range 3 {
				if s, err := m.Job(m.ctx(), "", MovedID(id, cell)); err == nil && (s.ID != id || s.State != freeslot.StateWaiting) || err != nil && i > 2 {
					t.Errorf("step %d, cell %d: %+v, %v", i, cell, s, err)
				}
			}
			if got := m.listed(""); !slices.Equal(got, []string{id}) {
				t.Errorf("listed: %v", got)
			}
		}
		s, err := m.Cancel(m.ctx(), "", id)
		if err != nil || s.State != freeslot.StateCancelled || s.ID != id {
			t.Errorf("%+v, %v, expected state %s, id %v", s, err, freeslot.StateCancelled, id)
		}
		m.later()
		for range 2 {
			for cell := range 3 {
				m.driven(cell, 0)
			}
		}
		m.sound()
		if got := m.listed(freeslot.StateCancelled); !slices.Equal(got, []string{id}) {
			t.Errorf("listed: %v", got)
		}
	})
}

// A move that stopped halfway is brought to its end by whoever wants something of the job.
func TestMoveHelped(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		for _, c := range m.rigs {
			must(t, c.OpenReplies(m.ctx(), "r2"))
		}
		id := m.waitsIn(0, "r1")
		m.begin(0, 1, 1)
		s, err := m.Attach(m.ctx(), "acme", id, "r2")
		if err != nil || s.State != freeslot.StateWaiting || s.ID != id {
			t.Fatalf("%+v, %v, expected state %s, id %v", s, err, freeslot.StateWaiting, id)
		}
		if at := m.rigs[1].field(m.rigs[1].l.Job(MovedID(id, 1)), "reply_to"); at != "r2" {
			t.Errorf("its result goes to %q", at)
		}
		m.begin(1, 2, 1)
		_, err = m.CancelIf(m.ctx(), "acme", id, Seen{State: freeslot.StateRunning})
		if freeslot.CodeOf(err) != freeslot.CodeConflict || !strings.Contains(err.Error(), id+" is waiting") {
			t.Errorf("cancel if it runs: %v; want a conflict that names job %s as waiting", err, id)
		}
		if s, err = m.CancelIf(m.ctx(), "acme", id, Seen{State: freeslot.StateMoving}); err != nil || s.State != freeslot.StateCancelled {
			t.Fatalf("%+v, %v, expected state %s", s, err, freeslot.StateCancelled)
		}
		if told := m.rigs[2].told("r2"); len(told) != 1 || told[0].Status.State != freeslot.StateCancelled {
			t.Errorf("told %+v", told)
		}
		m.sound()
	})
}

// The record is kept of a job that came and ended before that was known where it came from, until it
// is: else it would come once more.
func TestMoveHeld(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		id := m.waitsIn(0, "")
		m.begin(0, 1, 1)
		found, _, err := m.At(0).moves(m.ctx(), m.rigs[0].l.Moves(), 0, 10)
		must(t, err)
		what, err := m.At(1).moveIn(m.ctx(), []*Move{&found[0]}, m.rigs[0].nowMS()+1000, nil)
		if err != nil || !slices.Equal(what, []int64{moveCame}) {
			t.Fatal(what, err)
		}
		m.runsIn(1, id)
		if ttl := m.rigs[1].int("PTTL", m.rigs[1].l.Job(MovedID(id, 1))); ttl < holdMS/2 {
			t.Errorf("kept for %d ms", ttl)
		}
		// It has ended, whatever the record says that it came from.
		if s := m.job(id); s.State != freeslot.StateSucceeded || s.ID != id {
			t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.ID == %v", s, id)
		}
		if got := m.listed(""); !slices.Contains(got, id) {
			t.Errorf("listed: %v", got)
		}
		m.driven(0, 0)
		if ttl := m.rigs[1].int("PTTL", m.rigs[1].l.Job(MovedID(id, 1))); ttl > keptMS || ttl < keptMS/2 {
			t.Errorf("kept for %d ms", ttl)
		}
		m.sound()
		// What was read before is too old to act upon once the record is gone.
		m.rigs[1].do("DEL", m.rigs[1].l.Job(MovedID(id, 1)))
		m.rigs[1].do("DEL", m.rigs[1].l.Finished())
		if what, err = m.At(1).moveIn(m.ctx(), []*Move{&found[0]}, m.rigs[0].nowMS()-1, nil); err != nil || !slices.Equal(what, []int64{moveLate}) {
			t.Error(what, err)
		}
	})
}

// An idempotency key names the job that has moved, in the cell in which it is looked for.
func TestMoveKey(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		m.SetGuide(&Guide{Home: func(string, *freeslot.Job) (int, bool) { return 2, true }})
		keyed := func(s *Submission) { s.Job.IdempotencyKey = "k" }
		id := m.waitsIn(0, "", keyed)
		m.arrives(0, 1, 1)
		again := submission("")
		keyed(&again)
		again.JobID = m.At(2).NewJobID()
		if p := m.rigs[2].enqueued(again)[0]; p.Owner != id || p.Differs {
			t.Errorf("%+v", p)
		}
		again.Job.Payload = json.RawMessage(`"other"`)
		if p := m.rigs[2].enqueued(again)[0]; p.Owner != id || !p.Differs {
			t.Errorf("%+v; want p.Owner == %v, p.Differs", p, id)
		}
		m.sound()
	})
}

// A job with a concurrency key goes where the key decides, and counts towards its limits there.
func TestMoveGates(t *testing.T) {
	onMovers(t, func(t *testing.T, m *movers) {
		home := -1
		m.SetGuide(&Guide{
			Home: func(string, *freeslot.Job) (int, bool) { return home, home >= 0 },
			Limits: func(tenant string, _ *freeslot.Job, _ int) []Limit {
				return []Limit{KeyLimit(tenant, "k", 1), WaitingLimit(tenant, 9)}
			},
		})
		limited := func(s *Submission) {
			s.Job.ConcurrencyKey, s.Limits = "k", []Limit{KeyLimit("acme", "k", 1), WaitingLimit("acme", 9)}
		}
		first, second := m.waitsIn(0, "", limited), m.waitsIn(0, "", limited)
		m.begin(0, 1, 2)
		m.driven(0, 0) // nobody can say where they go
		home = 2
		if s, err := m.Cancel(m.ctx(), "", second); err != nil || s.State != freeslot.StateCancelled {
			t.Fatalf("%+v, %v, expected state %s", s, err, freeslot.StateCancelled)
		}
		m.later()
		m.driven(0, 0)
		m.driven(0, 1)
		m.sound()
		r := m.rigs[2]
		third := m.waitsIn(2, "", limited)
		r.register(testNode("n2", 4))
		if n := r.take("n2"); n != 1 {
			t.Errorf("%d jobs run of which one may", n)
		}
		if s := m.job(first); s.State != freeslot.StateRunning {
			t.Errorf("%+v, %+v; want s.State == freeslot.StateRunning", s, m.job(third))
		}
		m.sound()
	})
}

// A server that does not answer, at whichever step, holds a move up and loses nothing; nobody is told that
// a job is not there meanwhile.
func TestMoveWithServersAway(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.New(t), redistest.New(t)}
	s := newSet(t, servers[0].Prefix(t), 2, servers[0].Target, servers[1].Target)
	m := &movers{Set: s, t: t}
	for i, c := range s.All() {
		m.rigs = append(m.rigs, &rig{Cell: c, t: t, redis: servers[i].Target, raw: c.client, l: c.layout})
	}
	hasty := s.withTimeout(t, 100*time.Millisecond)
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || freeslot.CodeOf(err) == freeslot.CodeNotFound {
			t.Errorf("%s: %v; want an error, freeslot.CodeOf(err) != freeslot.CodeNotFound", what, err)
		}
	}
	// away does something while a server does not answer.
	away := func(server int, f func()) {
		t.Helper()
		servers[server].Pause()
		m.Set = hasty
		f()
		m.Set = s
		servers[server].Resume()
	}
	ask := func(id string) {
		t.Helper()
		_, err := m.Job(m.ctx(), "", id)
		refused("read", err)
		_, err = m.Cancel(m.ctx(), "", id)
		refused("cancel", err)
		_, err = m.Attach(m.ctx(), "", id, "r1")
		refused("attach", err)
		if found, failed := m.Elsewhere(m.ctx(), []string{id}); len(found) != 0 || !failed[id] {
			t.Errorf("%+v, %v; want len(found) == 0, failed[id]", found, failed)
		}
	}
	drive := func() error {
		_, err := m.DriveMoves(m.ctx(), m.At(0), 0, 10)
		return err
	}
	id := m.waitsIn(0, "")
	m.begin(0, 1, 1)
	away(1, func() {
		refused("drive", drive())
		if at := m.rigs[0].scores(m.rigs[0].l.Moves())[id]; at <= float64(m.rigs[0].nowMS()) {
			t.Errorf("it is to be looked at again at %.0f, which holds up others", at)
		}
		ask(id)
	})
	m.sound()
	m.later()
	found, _, err := m.At(0).moves(m.ctx(), m.rigs[0].l.Moves(), 0, 10)
	must(t, err)
	if _, err := m.At(1).moveIn(m.ctx(), []*Move{&found[0]}, 1e15, nil); err != nil {
		t.Fatal(err)
	}
	away(0, func() { refused("drive", drive()) })
	// It is there, and what it comes from does not know.
	m.runsIn(1, id)
	away(1, func() { ask(id) })
	m.later()
	must(t, drive())
	away(1, func() { ask(id) })
	m.sound()
	if s := m.job(id); s.State != freeslot.StateSucceeded || s.Attempt != 1 {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Attempt == 1", s)
	}
}
