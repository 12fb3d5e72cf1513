package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
)

// TestOrder: whatever the interleaving of entries, reads, heartbeats and a full line, nothing is
// delivered before the first answer, nothing behind an answer that Redis wrote before it, what came
// later is not lost, and nothing overtakes.
func TestOrder(t *testing.T) {
	t.Parallel()
	seeds := 1000
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		orderOf(t, uint64(seed))
	}
}

func orderOf(t *testing.T, seed uint64) {
	const entries, beats = 60, 12
	f := &timedCell{fakeCell: newFakeCell(), written: make(chan struct{}, 1), end: make(chan struct{}), last: entries}
	life, end := context.WithCancel(t.Context())
	h := &Handler{cfg: Config{HeartbeatLimit: time.Hour}, metrics: newMetrics(nil, nil), log: zap.NewNop(), unanswered: logging.NewRepeated(zap.NewNop(), ""), calls: life, hubs: map[Cell]*hub{}}
	s := &session{handler: h, id: "s", cell: f, node: "n", epoch: "e", owner: &owner{}, conn: socket.NewDetached(new(socketConfig(h.metrics)))}
	s.hub = h.hub(f)
	<-s.hub.tried
	h.mu.Lock()
	h.live = map[string]*session{"s": s}
	h.mu.Unlock()

	var both sync.WaitGroup
	var sent [][]byte
	both.Go(func() { // Redis takes in jobs
		random := rand.New(rand.NewPCG(seed, 1))
		for range entries {
			f.write(random.IntN(2))
			for range random.IntN(4) {
				runtime.Gosched()
			}
		}
	})
	both.Go(func() { // the agent
		random := rand.New(rand.NewPCG(seed, 2))
		for range random.IntN(100) { // what comes before the first heartbeat must wait for it
			runtime.Gosched()
		}
		for id := range beats {
			s.heartbeat(request{&frame.Request{Type: frame.TypeHeartbeat, ID: uint64(id + 1), Now: true}, 0})
			s.requests.Wait()
			for range random.IntN(8) {
				runtime.Gosched()
			}
		}
	})
	both.Go(func() { // the line is full at times
		random := rand.New(rand.NewPCG(seed, 3))
		full := []byte(`{"type":"sync","reason":"` + strings.Repeat("x", jobBytes) + `"}`)
		for range random.IntN(40) {
			s.conn.PutBelow(full, queueBytes)
			for range random.IntN(20) {
				runtime.Gosched()
			}
			sent = append(sent, s.conn.Take()...)
			if random.IntN(4) > 0 {
				s.deliverHeld()
			}
		}
	})
	both.Wait()
	<-f.end // the stream was read to its end
	end()
	h.stopHubs(t.Context())
	s.deliverHeld()

	beat, last, delivered := 0, 0, map[int]bool{}
	for _, text := range append(sent, s.conn.Take()...) {
		if len(text) > jobBytes {
			continue // it only filled the line
		}
		err := frame.DecodeAnswers(text, func(a *frame.Answer) error {
			if a.Type == frame.TypeBeat {
				beat = a.Start[0].N
			}
			for _, d := range a.Jobs {
				switch {
				case beat == 0:
					return fmt.Errorf("%s is delivered before the first answer", d.Attempt)
				case d.Attempt.N < beat:
					return fmt.Errorf("%s is delivered behind the answer at %d", d.Attempt, beat)
				case d.Attempt.N < last:
					return fmt.Errorf("%s is delivered behind %d", d.Attempt, last)
				}
				last, delivered[d.Attempt.N] = d.Attempt.N, true
			}
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for _, at := range f.times {
		if at >= beat && !delivered[at] {
			t.Fatalf("seed %d: what was written at %d, after the last answer at %d, is lost", seed, at, beat)
		}
	}
}

// timedCell has a stream and a clock: the number of an attempt is when it was written, and an answer
// names its own time as an attempt.
type timedCell struct {
	*fakeCell
	written chan struct{} // signals an entry
	end     chan struct{} // closed when a read comes behind the last entry
	last    int

	mu     sync.Mutex // guards what follows
	now    int
	times  []int
	entry  []cell.GatewayDispatch
	closed bool
}

func (f *timedCell) write(later int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += later
	f.now = max(f.now, 1)
	f.times = append(f.times, f.now)
	entry := cell.Dispatch{ID: fmt.Sprintf("%d-%d", f.now, len(f.entry)), Attempt: cell.Attempt{Job: "j", N: f.now}}
	f.entry = append(f.entry, cell.GatewayDispatch{Dispatch: entry, Node: "n", Session: "s"})
	select {
	case f.written <- struct{}{}:
	default:
	}
}

func (f *timedCell) HeartbeatsLinked(context.Context, []cell.LinkedHeartbeat) []cell.HeartbeatResult {
	f.mu.Lock()
	f.now++ // an entry of the same millisecond may come before or behind
	at := f.now
	f.mu.Unlock()
	runtime.Gosched()
	return []cell.HeartbeatResult{{HeartbeatReply: cell.HeartbeatReply{AtMS: int64(at), Start: []cell.Attempt{{Job: "at", N: at}}}}}
}

func (f *timedCell) GatewayDispatches(ctx context.Context, _, after string, _ time.Duration, limit int) ([]cell.GatewayDispatch, error) {
	for {
		f.mu.Lock()
		from := 0
		for i := range f.entry {
			if f.entry[i].ID == after {
				from = i + 1
			}
		}
		found := append([]cell.GatewayDispatch(nil), f.entry[from:min(from+limit, len(f.entry))]...)
		if from == f.last && !f.closed {
			f.closed = true
			close(f.end)
		}
		f.mu.Unlock()
		runtime.Gosched()
		if len(found) > 0 {
			return found, nil
		}
		select {
		case <-f.written:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
