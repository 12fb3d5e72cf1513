package faults

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// nodesBackLimit is how long after a loss of all data the nodes may be away: an agent finds out by
// its next heartbeat.
const nodesBackLimit = 2 * time.Second

// TestFlush empties Redis under load. The jobs of before are answered as lost or with the end that
// they had; nodes come back by themselves; a submission meanwhile is put off and never refused for
// good; jobs that are accepted afterwards run.
func TestFlush(t *testing.T) {
	if os.Getenv("SHORT") == "1" {
		t.Skip("left out by SHORT=1")
	}
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("always"))
	f, folder := newFailover(t, fleetConfig{slots: []int{2, 3, 4, 3}, cells: 1, store: &store{url: redis.Process().URL(), loses: true}})
	var loss Loss
	history, rested := runLoad(t, f, 1, restLimit, func(ctx context.Context, _ func(string)) {
		pause(ctx, steady)
		f.fault("flush all")
		if err := ask(ctx, redis.Process(), "FLUSHALL").Error(); err != nil {
			t.Error(err)
		}
		loss.To = f.rec.Now()
		f.nodesBack(ctx, loss.To)
		f.resumed(ctx, loss.To, func(string) bool { return true })
		pause(ctx, steady)
	})
	history.Losses = []Loss{loss} // of all that was before
	judge(t, history, rested, folder, refusedAfter(history, loss.To)...)
	if lost := lostAnswers(history); lost == 0 {
		t.Error("no job was answered as lost, although all were")
	} else {
		t.Logf("%d jobs were answered as lost", lost)
	}
}

// nodesBack waits until all nodes are online again.
func (f *fleet) nodesBack(ctx context.Context, since time.Duration) {
	f.t.Helper()
	busy := margin()
	redis, err := f.client()
	if err != nil {
		f.t.Fatal(err)
	}
	defer redis.Close()
	online := f.layout("n1").Online()
	for limit, cancel := context.WithTimeout(ctx, startLimit); ; {
		members, err := redis.Do(limit, redis.B().Smembers().Key(online).Build()).AsStrSlice()
		if err == nil && len(members) == len(f.nodes) {
			cancel()
			break
		}
		if !pause(limit, roleInterval) {
			cancel()
			f.t.Errorf("of %d nodes only %v are back (%v)", len(f.nodes), members, err)
			return
		}
	}
	took := f.rec.Now() - since
	f.t.Logf("all nodes were back after %s", took.Round(time.Millisecond))
	if took > nodesBackLimit+busy() {
		f.t.Errorf("the nodes were away for %s, expected at most %s", took, nodesBackLimit)
	}
}

// refusedAfter are the submissions after a time that were refused for good.
func refusedAfter(h *History, after time.Duration) (found []Violation) {
	for i := range h.Events {
		e := &h.Events[i]
		if e.Kind == Refused && e.At > after && !freeslot.Code(e.Code).Temporary() {
			found = append(found, Violation{Rule: "refused for good", Text: fmt.Sprintf("submission %d at %s: %s", e.N, e.At, e.Note)})
		}
	}
	return found
}
