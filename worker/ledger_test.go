package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/cell"
)

func id(n int) cell.Attempt { return cell.Attempt{Job: fmt.Sprintf("0-%d", n), N: 1} }

// next is the attempt of the same job after a.
func next(a cell.Attempt) cell.Attempt { return cell.Attempt{Job: a.Job, N: a.N + 1} }

func TestLedgerKnowsHeldAttempts(t *testing.T) {
	l := newLedger(t.Context(), 4)
	a := l.offer(id(1), nil, "", false)
	if a == nil || l.offer(id(1), nil, "", false) != nil {
		t.Fatal("expected the first offer to be taken and the second not")
	}
	if next := l.offer(cell.Attempt{Job: id(1).Job, N: 2}, nil, "", false); next == nil {
		t.Fatal("another attempt of the same job was taken for the first")
	}
}

// A job comes back before a heartbeat has removed its earlier attempt from memory.
func TestLedgerHoldsAttemptsApart(t *testing.T) {
	l := newLedger(t.Context(), 4)
	l.remove(l.offer(id(1), nil, "", false))
	l.ask(id(1)) // too late
	second := l.offer(next(id(1)), nil, "", false)
	if second == nil || second.ctx.Err() != nil {
		t.Fatal("the end of an attempt, or a cancel of it, was taken for the next one's")
	}
	l.ask(next(second.id)) // early
	l.disown(id(1))
	if !l.begin(second) || second.asked || second.disowned {
		t.Fatal("a message about other attempts changed this one")
	}
	if third := l.offer(next(second.id), nil, "", false); third == nil || !third.asked || second.asked {
		t.Fatal("an early cancel did not reach its attempt")
	}
	if names, _ := l.beat(); len(names) != 2 {
		t.Fatalf("heartbeat names %v, expected both attempts that are held", names)
	}
}

// The reply to a heartbeat that began before an attempt arrived asks to start it, although the
// attempt may have ended since.
func TestLedgerRemembersUntilALaterHeartbeat(t *testing.T) {
	l := newLedger(t.Context(), 4)
	_, early := l.beat()
	l.remove(l.offer(id(1), nil, "", false))
	l.caughtUp(l.read())
	if l.offer(id(1), nil, "", false) != nil {
		t.Fatal("started again by the reply to a heartbeat that began before its end")
	}
	l.answered(early)
	if !l.ended.has(id(1)) {
		t.Fatal("forgotten by a heartbeat that began before its end")
	}
	_, late := l.beat()
	l.answered(late)
	if l.ended.has(id(1)) {
		t.Fatal("still remembered")
	}
}

// An attempt that a heartbeat's reply started may still be ahead in the stream.
func TestLedgerRemembersUntilALaterRead(t *testing.T) {
	l := newLedger(t.Context(), 4)
	early := l.read()
	l.remove(l.offer(id(1), nil, "", false))
	_, beat := l.beat()
	l.answered(beat)
	if l.offer(id(1), nil, "", false) != nil {
		t.Fatal("started again by a read that began before its end")
	}
	l.caughtUp(early)
	if !l.ended.has(id(1)) {
		t.Fatal("forgotten by a read that began before its end")
	}
	l.caughtUp(l.read())
	if l.ended.has(id(1)) {
		t.Fatal("still remembered")
	}
}

// An attempt that a heartbeat's reply started may still be in the answer to a report.
func TestLedgerRemembersUntilEarlierReportsAreThrough(t *testing.T) {
	l := newLedger(t.Context(), 4)
	first, second := l.report(), l.report()
	l.remove(l.offer(id(1), nil, "", false))
	forget := func() {
		_, beat := l.beat()
		l.answered(beat)
		l.caughtUp(l.read())
	}
	later := l.report()
	l.reported(second)
	forget()
	if l.offer(id(1), nil, "", false) != nil {
		t.Fatal("started again by a report that began before its end")
	}
	l.reported(first)
	forget()
	if l.ended.has(id(1)) {
		t.Fatal("still remembered")
	}
	l.remove(l.offer(id(2), nil, "", false))
	l.reported(later)
	forget()
	if l.ended.has(id(2)) {
		t.Fatal("still remembered with no report under way")
	}
}

func TestLedgerCancelsWhatItHasNotSeen(t *testing.T) {
	l := newLedger(t.Context(), 4)
	l.ask(id(1))
	a := l.offer(id(1), nil, "", false)
	if a == nil || !errors.Is(context.Cause(a.ctx), ErrCancelled) || l.begin(a) {
		t.Fatal("an attempt whose cancel came first began")
	}
	if asked, _ := l.finish(a); !asked {
		t.Fatal("the cancel was forgotten")
	}
	l.ask(id(2))
	_, n := l.beat()
	l.answered(n)
	l.caughtUp(l.read())
	if b := l.offer(id(2), nil, "", false); b.ctx.Err() != nil {
		t.Fatal("a cancel outlived the heartbeat that would have repeated it")
	}
}

func TestLedgerBoundsEarlyCancels(t *testing.T) {
	l := newLedger(t.Context(), 4)
	for i := range maxEarlyCancels + 1 {
		l.ask(id(i))
	}
	if len(l.cancels.since) != maxEarlyCancels || l.cancels.has(id(0)) || !l.cancels.has(id(maxEarlyCancels)) {
		t.Fatalf("%d cancels remembered, expected the newest %d", len(l.cancels.since), maxEarlyCancels)
	}
}

func TestLedgerLeavesADecidedEndAlone(t *testing.T) {
	l := newLedger(t.Context(), 4)
	a := l.offer(id(1), nil, "", false)
	if !l.begin(a) {
		t.Fatal("did not begin")
	}
	l.finish(a)
	l.ask(a.id)
	l.disown(a.id)
	if a.ctx.Err() != nil || a.asked || a.disowned {
		t.Fatal("changed after its end was decided")
	}
	if names, _ := l.beat(); !slices.Equal(names, []cell.Attempt{a.id}) {
		t.Fatalf("heartbeat names %v, expected the unacknowledged attempt", names)
	}
}

func TestLedgerDisowns(t *testing.T) {
	l := newLedger(t.Context(), 4)
	a := l.offer(id(1), nil, "", false)
	l.begin(a)
	l.disown(a.id)
	if cause := context.Cause(a.ctx); !errors.Is(cause, ErrNotOwned) {
		t.Fatalf("cause %v, expected ErrNotOwned", cause)
	}
	if names, _ := l.beat(); len(names) != 0 {
		t.Fatalf("heartbeat names %v, expected none", names)
	}
	if l.offer(a.id, nil, "", false) != nil {
		t.Fatal("started again while its first handler still runs")
	}
}

func TestLedgerTurnsAwayBeyondTheLimit(t *testing.T) {
	l := newLedger(t.Context(), 1)
	a := l.offer(id(1), nil, "", false)
	for i := 2; i <= heldPerSlot; i++ {
		if l.offer(id(i), nil, "", false) == nil {
			t.Fatalf("no room for attempt %d of %d", i, heldPerSlot)
		}
	}
	one := id(heldPerSlot + 1)
	if l.offer(one, nil, "", false) != nil {
		t.Fatalf("room for more than %d", heldPerSlot)
	}
	if !l.remove(a) {
		t.Fatal("room came free and no heartbeat asks for what was turned away")
	}
	if l.remove(l.offer(one, nil, "", false)) {
		t.Fatal("nothing was turned away since")
	}
}

func TestLedgerDrains(t *testing.T) {
	l := newLedger(t.Context(), 4)
	runs, waits := l.offer(id(1), nil, "", false), l.offer(id(2), nil, "", false)
	l.begin(runs)
	idle := l.drain(ErrStopping)
	late := l.offer(id(3), nil, "", false)
	if runs.ctx.Err() != nil || !errors.Is(context.Cause(waits.ctx), ErrStopping) || !errors.Is(context.Cause(late.ctx), ErrStopping) {
		t.Fatal("expected the running attempt to go on and the others to be cancelled")
	}
	if jobs := l.interrupt(); len(jobs) != 3 {
		t.Errorf("interrupted %v", jobs)
	}
	if !errors.Is(context.Cause(runs.ctx), ErrStopping) {
		t.Fatal("the running attempt was not interrupted")
	}
	for _, a := range []*attempt{runs, waits, late} {
		select {
		case <-idle:
			t.Fatal("idle while something is held")
		default:
		}
		l.remove(a)
	}
	<-idle
	l.close()
	if l.offer(id(4), nil, "", false) != nil {
		t.Fatal("took an offer after close")
	}
}

func TestAttemptSetDropsTheOldest(t *testing.T) {
	m := newAttemptSet(2)
	m.add(id(1), moment{1, 1, 1})
	m.add(id(2), moment{1, 1, 1})
	m.remove(id(1))
	m.add(id(3), moment{2, 2, 2})
	if m.has(id(1)) || !m.has(id(2)) || !m.has(id(3)) {
		t.Fatal("a removed entry was not the one that was displaced")
	}
	m.add(id(4), moment{3, 3, 3})
	if m.has(id(2)) || !m.has(id(3)) || !m.has(id(4)) {
		t.Fatal("expected the oldest to be displaced")
	}
}

// ledgerModel plays Redis for a ledger: assignments appear in the slots and in the
// stream at one step; heartbeats and reads are sent, executed and answered at
// steps of their own, in any order with everything else. A job can be taken from the
// node and come back as its next attempt at any time.
type ledgerModel struct {
	l       *ledger
	next    int
	owned   map[cell.Attempt]bool
	lost    map[cell.Attempt]bool // taken from the node before it had ended there
	given   []cell.Attempt        // every attempt that the node has ever owned
	stream  []cell.Attempt
	pos     int
	starts  map[cell.Attempt]int
	running []*attempt
	applied []*attempt // ended in Redis, not acknowledged

	beat    *modelBeat
	read    *modelRead
	reports []*modelReport
}

type modelBeat struct {
	number   uint64
	names    []cell.Attempt
	executed bool
	start    []cell.Attempt
	stop     []cell.Attempt
}

type modelRead struct {
	number   uint64
	executed bool
	entries  []cell.Attempt
}

// modelReport ends an attempt, and brings another that begins in its place.
type modelReport struct {
	number   uint64
	of       *attempt
	executed bool
	begun    cell.Attempt
}

const modelReadLimit = 2

func (m *ledgerModel) assign(a cell.Attempt) {
	m.owned[a] = true
	m.stream = append(m.stream, a)
	m.given = append(m.given, a)
}

// complete ends a in Redis, which refuses attempts that the node does not own.
func (m *ledgerModel) complete(t *rapid.T, a *attempt) {
	m.l.begin(a)
	if _, disowned := m.l.finish(a); disowned && m.owned[a.id] {
		t.Fatalf("attempt %v was stopped although it is owned", a.id)
	}
	delete(m.owned, a.id)
}

func (m *ledgerModel) take(a cell.Attempt, handed bool) {
	if got := m.l.offer(a, nil, "", handed); got != nil {
		m.starts[a]++
		m.running = append(m.running, got)
	}
}

func (m *ledgerModel) sendBeat() {
	if m.beat == nil {
		names, number := m.l.beat()
		m.beat = &modelBeat{number: number, names: names}
	}
}

func (m *ledgerModel) executeBeat() {
	if m.beat == nil || m.beat.executed {
		return
	}
	m.beat.executed = true
	for a := range m.owned {
		if !slices.Contains(m.beat.names, a) {
			m.beat.start = append(m.beat.start, a)
		}
	}
	for _, a := range m.beat.names {
		if !m.owned[a] {
			m.beat.stop = append(m.beat.stop, a)
		}
	}
}

func (m *ledgerModel) answerBeat() {
	if m.beat == nil || !m.beat.executed {
		return
	}
	for _, a := range m.beat.stop {
		m.l.disown(a)
	}
	for _, a := range m.beat.start {
		m.take(a, false)
	}
	m.l.answered(m.beat.number)
	m.beat = nil
}

func (m *ledgerModel) sendRead() {
	if m.read == nil {
		m.read = &modelRead{number: m.l.read()}
	}
}

func (m *ledgerModel) executeRead() {
	if m.read != nil && !m.read.executed {
		m.read.executed = true
		m.read.entries = m.stream[m.pos:min(m.pos+modelReadLimit, len(m.stream))]
	}
}

func (m *ledgerModel) answerRead() {
	if m.read == nil || !m.read.executed {
		return
	}
	for _, a := range m.read.entries {
		m.take(a, false)
	}
	m.pos += len(m.read.entries)
	if len(m.read.entries) < modelReadLimit {
		m.l.caughtUp(m.read.number)
	}
	m.read = nil
}

func (m *ledgerModel) executeReport(t *rapid.T, r *modelReport) {
	if r.executed {
		return
	}
	r.executed = true
	m.complete(t, r.of)
	m.next++
	r.begun = id(m.next)
	m.owned[r.begun] = true
	m.given = append(m.given, r.begun)
}

// answerReport hands over what the report brought, unless the answer is lost: then the report is
// repeated, which brings nothing.
func (m *ledgerModel) answerReport(r *modelReport, lost bool) {
	if !lost {
		m.take(r.begun, true)
	}
	m.l.reported(r.number)
	m.l.remove(r.of)
}

func TestLedgerStartsEachAttemptOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &ledgerModel{l: newLedger(context.Background(), 3), owned: map[cell.Attempt]bool{}, lost: map[cell.Attempt]bool{}, starts: map[cell.Attempt]int{}}
		pick := func(list *[]*attempt) *attempt {
			if len(*list) == 0 {
				return nil
			}
			i := rapid.IntRange(0, len(*list)-1).Draw(t, "which")
			a := (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return a
		}
		actions := map[string]func(*rapid.T){
			"assign": func(*rapid.T) {
				m.next++
				m.assign(id(m.next))
			},
			// The node was reaped, and got the job again.
			"lose": func(t *rapid.T) {
				owned := slices.SortedFunc(maps.Keys(m.owned), func(a, b cell.Attempt) int {
					return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.N, b.N))
				})
				if len(owned) > 0 {
					a := rapid.SampledFrom(owned).Draw(t, "lost")
					delete(m.owned, a)
					m.lost[a] = true
					m.assign(next(a))
				}
			},
			// After a retryable failure the job comes back before the node has the answer to its
			// report.
			"retry": func(t *rapid.T) {
				if a := pick(&m.running); a != nil {
					owned := m.owned[a.id]
					m.complete(t, a)
					m.applied = append(m.applied, a)
					if owned {
						m.assign(next(a.id))
					}
				}
			},
			"sendBeat": func(*rapid.T) { m.sendBeat() }, "executeBeat": func(*rapid.T) { m.executeBeat() },
			"answerBeat": func(*rapid.T) { m.answerBeat() },
			"loseBeat":   func(*rapid.T) { m.beat = nil },
			"sendRead":   func(*rapid.T) { m.sendRead() }, "executeRead": func(*rapid.T) { m.executeRead() },
			"answerRead": func(*rapid.T) { m.answerRead() },
			"loseRead":   func(*rapid.T) { m.read = nil },
			"complete": func(t *rapid.T) {
				if a := pick(&m.running); a != nil {
					m.complete(t, a)
					m.applied = append(m.applied, a)
				}
			},
			"end": func(t *rapid.T) {
				if a := pick(&m.running); a != nil {
					m.complete(t, a)
					m.l.remove(a)
				}
			},
			"acknowledge": func(*rapid.T) {
				if a := pick(&m.applied); a != nil {
					m.l.remove(a)
				}
			},
			"sendReport": func(*rapid.T) {
				if a := pick(&m.running); a != nil {
					m.reports = append(m.reports, &modelReport{number: m.l.report(), of: a})
				}
			},
			"executeReport": func(t *rapid.T) {
				if len(m.reports) > 0 {
					m.executeReport(t, rapid.SampledFrom(m.reports).Draw(t, "report"))
				}
			},
			"answerReport": func(t *rapid.T) {
				if len(m.reports) > 0 {
					i := rapid.IntRange(0, len(m.reports)-1).Draw(t, "report")
					r := m.reports[i]
					m.reports = slices.Delete(m.reports, i, i+1)
					m.executeReport(t, r)
					m.answerReport(r, rapid.Bool().Draw(t, "lost"))
				}
			},
			// Whole operations, so that long histories are likely too.
			"read": func(*rapid.T) { m.read = nil; m.sendRead(); m.executeRead(); m.answerRead() },
			"beat": func(*rapid.T) { m.beat = nil; m.sendBeat(); m.executeBeat(); m.answerBeat() },
			"": func(t *rapid.T) {
				for a, n := range m.starts {
					if n > 1 {
						t.Fatalf("attempt %v was started %d times", a, n)
					}
				}
			},
		}
		t.Repeat(actions)

		// At the end, once heartbeats get through, every owned attempt is started exactly once,
		// every lost one at most once, and with the stream read nothing stays remembered.
		for _, r := range m.reports {
			m.executeReport(t, r)
			m.answerReport(r, true)
		}
		for range 2*len(m.given) + 2 {
			for len(m.running) > 0 {
				actions["complete"](t)
			}
			for len(m.applied) > 0 {
				actions["acknowledge"](t)
			}
			m.answerBeat()
			m.sendBeat()
			m.executeBeat()
			m.answerBeat()
			m.executeRead()
			m.answerRead()
			m.sendRead()
			m.executeRead()
			m.answerRead()
		}
		for _, a := range m.given {
			if n := m.starts[a]; n != 1 && (n != 0 || !m.lost[a]) {
				t.Fatalf("attempt %v was started %d times, expected once", a, n)
			}
		}
		if len(m.l.held)+len(m.l.ended.order)+len(m.l.ended.since)+len(m.l.endedHandedOver.order)+len(m.l.endedHandedOver.since) != 0 {
			t.Fatalf("left over: %d held, %d remembered", len(m.l.held), len(m.l.ended.order))
		}
	})
}
