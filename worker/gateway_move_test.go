package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

const moveLimit = cell.DefaultHeartbeatLimit

// gatedCell is how one gateway reaches the cell.
type gatedCell struct {
	*linkedCell
	gate atomic.Pointer[func(context.Context) error] // called before each call, if set
}

func (g *gatedCell) pass(ctx context.Context) error {
	if gate := g.gate.Load(); gate != nil {
		return (*gate)(ctx)
	}
	return nil
}

func (g *gatedCell) Link(ctx context.Context, node string) (cell.NodeLink, error) {
	if err := g.pass(ctx); err != nil {
		return cell.NodeLink{}, err
	}
	return g.linkedCell.Link(ctx, node)
}

func (g *gatedCell) HeartbeatsLinked(ctx context.Context, beats []cell.LinkedHeartbeat) []cell.HeartbeatResult {
	if err := g.pass(ctx); err != nil {
		out := make([]cell.HeartbeatResult, len(beats))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return g.linkedCell.HeartbeatsLinked(ctx, beats)
}

func (g *gatedCell) CompleteNode(ctx context.Context, comps []cell.Completion) []cell.CompletionResult {
	if err := g.pass(ctx); err != nil {
		out := make([]cell.CompletionResult, len(comps))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return g.linkedCell.CompleteNode(ctx, comps)
}

func away(context.Context) error { return errRedisAway }

// moving is a worker that heartbeats at half of the limit, with the gateways of replicas a and b.
type moving struct {
	gatewaytest.Network
	*fakeCell
	t     *testing.T
	w     *Worker
	cells map[string]*gatedCell
	from  string // where the worker is connected at the beginning

	record  sync.Mutex // guards the rest
	heard   time.Time  // the last heartbeat
	silence time.Duration
	runs    map[string]int
}

// move runs a test in virtual time, several times as pauses are random. A job runs all the while. In
// the end the node was never silent for too long, and each job has run once.
func move(t *testing.T, fn func(m *moving)) {
	for range 25 {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			release := make(chan struct{})
			m.w.Handle("long", func(_ context.Context, job *Job) (any, error) { m.ran(job); <-release; return nil, nil })
			m.w.Handle("short", func(_ context.Context, job *Job) (any, error) { m.ran(job); return nil, nil })
			if err := m.w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			long := m.assign(1, freeslot.Job{Service: "long"})
			m.end(t, m.assign(2, freeslot.Job{Service: "short"}))
			time.Sleep(rand.N(moveLimit)) // in virtual time
			m.from, _ = through(m.w)
			fn(m)
			m.end(t, m.assign(3, freeslot.Job{Service: "short"}))
			close(release)
			m.end(t, long)
			if err := m.w.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			if m.stale > 0 || fmt.Sprint(m.runs) != fmt.Sprint(map[string]int{id(1).Job: 1, id(2).Job: 1, id(3).Job: 1}) {
				t.Errorf("runs %v, %d reports of attempts that the node does not own", m.runs, m.stale)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	m := &moving{t: t, fakeCell: newFakeCell(), cells: map[string]*gatedCell{}, runs: map[string]int{}}
	linked := &linkedCell{fakeCell: m.fakeCell}
	for _, host := range []string{"a", "b"} {
		m.cells[host] = &gatedCell{linkedCell: linked}
		serveGateway(t, m.Listen(host), m.cells[host], moveLimit)
	}
	var err error
	m.w, err = New(Config{
		Gateway: "ws://a,ws://b", Token: testToken, HeartbeatInterval: moveLimit / 2,
		Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}, Collectors: []Collection{},
	})
	if err != nil {
		t.Fatal(err)
	}
	openThrough(m.w, m.fakeCell, &m.Network)
	m.onHeartbeat = func(int) error {
		m.record.Lock()
		defer m.record.Unlock()
		if now := time.Now(); m.heard.IsZero() {
			m.heard = now
		} else {
			m.silence, m.heard = max(m.silence, now.Sub(m.heard)), now
		}
		return nil
	}
	return m
}

func (m *moving) ran(job *Job) {
	m.record.Lock()
	defer m.record.Unlock()
	m.runs[job.ID]++
}

// lives lets time pass, and checks that no replica could take the node for dead.
func (m *moving) lives() {
	m.t.Helper()
	time.Sleep(5 * moveLimit) // in virtual time
	m.record.Lock()
	defer m.record.Unlock()
	if silence := max(m.silence, time.Since(m.heard)); silence >= moveLimit {
		m.t.Errorf("the node was silent for %s", silence)
	}
}

// connected checks where the worker is connected, and how often it has dialled until it was.
func (m *moving) connected(moved bool, dials int64) {
	m.t.Helper()
	if at, number := through(m.w); (at != m.from) != moved || number != dials {
		m.t.Errorf("connected to %s by dial %d, from %s, expected moved %v by dial %d", at, number, m.from, moved, dials)
	}
}

// TestMoveFromCutGateway: nothing comes through, and no connection ends.
func TestMoveFromCutGateway(t *testing.T) {
	move(t, func(m *moving) {
		m.Cut(m.from)
		m.lives()
		m.connected(true, 2)
	})
}

// TestMoveFromFrozenGateway: what the gateway does when it thaws is void. The node had left it.
func TestMoveFromFrozenGateway(t *testing.T) {
	move(t, func(m *moving) {
		m.Cut(m.from)
		moved := m.moved()
		time.Sleep(rand.N(moveLimit)) // in virtual time
		beats := m.beatsBy(moved)
		m.Arrive(m.from)
		synctest.Wait()
		if got := m.beatsBy(moved); got != beats {
			m.t.Errorf("%d heartbeats of the former gateway are taken", got-beats)
		}
		m.lives()
		m.connected(true, 2)
	})
}

// moved waits until the worker is connected elsewhere, and returns by which dial.
func (m *moving) moved() int64 {
	m.t.Helper()
	for range int(5 * moveLimit / time.Millisecond) {
		if at, number := through(m.w); at != m.from {
			return number
		}
		time.Sleep(time.Millisecond) // in virtual time
	}
	m.t.Fatal("the node does not move")
	return 0
}

// beatsBy counts the heartbeats by Redis, all of which had the connection's number or a higher one.
func (m *moving) beatsBy(number int64) int {
	m.t.Helper()
	l := m.cells["a"].linkedCell
	l.linkMu.Lock()
	defer l.linkMu.Unlock()
	if l.link.Connection != number {
		m.t.Errorf("Redis has heard connection %d, expected %d", l.link.Connection, number)
	}
	m.fakeCell.mu.Lock()
	defer m.fakeCell.mu.Unlock()
	return len(m.beats)
}

// TestMoveFromSlowGateway: a node stays where answers come within an eighth of the limit. Otherwise
// it lives by whichever gateway answers.
func TestMoveFromSlowGateway(t *testing.T) {
	move(t, func(m *moving) {
		for _, c := range m.At(m.from) {
			c.Delay.Store(int64(moveLimit / 8 / 4))
		}
		m.lives()
		m.connected(false, 1)
	})
	move(t, func(m *moving) {
		for _, c := range m.At(m.from) {
			c.Delay.Store(int64(3 * moveLimit / 8))
		}
		m.lives()
		m.connected(true, 2)
	})
}

// TestMoveFromGatewayWithoutRedis: the other gateway reaches Redis.
func TestMoveFromGatewayWithoutRedis(t *testing.T) {
	for name, gate := range map[string]func(context.Context) error{"away": away, "hung": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }} {
		t.Run(name, func(t *testing.T) {
			move(t, func(m *moving) {
				m.cells[m.from].gate.Store(&gate)
				m.lives()
				m.connected(true, 2)
			})
		})
	}
}

// TestOutageMovesNoNode: when Redis is away or hangs for all gateways, the node stays, and tries
// others rarely. It does not move when Redis is back.
func TestOutageMovesNoNode(t *testing.T) {
	const outage = time.Minute
	for name, hangs := range map[string]bool{"away": false, "hung": true} {
		t.Run(name, func(t *testing.T) {
			move(t, func(m *moving) {
				back := make(chan struct{})
				gate := away
				if hangs {
					gate = func(ctx context.Context) error {
						select {
						case <-back:
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					}
				}
				for _, c := range m.cells {
					c.gate.Store(&gate)
				}
				m.assign(4, freeslot.Job{Service: "short"}) // its report waits
				before := m.Dialled()
				time.Sleep(outage - rand.N(moveLimit)) // in virtual time
				if tried := m.Dialled() - before; tried < 2 || tried > 4+int(outage/moveLimit) {
					m.t.Errorf("%d dials while Redis was away", tried)
				}
				m.connected(false, 1)
				for _, c := range m.cells {
					c.gate.Store(nil)
				}
				close(back)
				m.end(m.t, id(4))
				m.record.Lock()
				m.silence, m.heard = 0, time.Now()
				delete(m.runs, id(4).Job)
				m.record.Unlock()
				before = m.Dialled()
				m.lives()
				if more := m.Dialled() - before; more > 1 { // one may have been about to
					m.t.Errorf("%d dials after Redis was back", more)
				}
				m.connected(false, 1)
			})
		})
	}
}
