package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	// elsewhereLimit is how long a job may be without a node when its agent has died, beside the
	// heartbeat limit.
	elsewhereLimit = time.Second
	// answerLimit is how long after the death of its replica a client may be without its result.
	answerLimit = 3 * time.Second
	// machineMargin is what a machine with other work may add, beside what margin measures.
	machineMargin = 500 * time.Millisecond
	// recoveries is how many agents die, at different times between their heartbeats.
	recoveries = 3
)

// await waits for an event that the condition holds for.
func await(t *testing.T, rec *Recorder, limit time.Duration, what string, condition func(e *Event) bool) Event {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		events := rec.Events()
		if i := slices.IndexFunc(events, func(e Event) bool { return condition(&e) }); i >= 0 {
			return events[i]
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

func dialFleet(t *testing.T, f *fleet, first string) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := client.Dial(ctx, f.urls(first), client.Options{Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestRecoveryOfNode kills agents that run with the default settings, and measures when their jobs
// run elsewhere.
func TestRecoveryOfNode(t *testing.T) {
	// A free node for each job, and few enough nodes: of many, a large part can only be silent
	// because their replica is deaf.
	slots := make([]int, 2*recoveries)
	for i := range slots {
		slots[i] = 1
	}
	f := newFleet(t, NewRecorder(), t.TempDir(), fleetConfig{replicas: 2, slots: slots, cells: 1})
	c := dialFleet(t, f, "r1")
	for n := range recoveries {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			recoverNode(t, f, c, n+1)
		})
	}
}

func recoverNode(t *testing.T, f *fleet, c *client.Client, n int) {
	t.Helper()
	task := Task{N: n, TakeMS: forEver, Slots: 1}
	h, err := c.Submit(t.Context(), task.job())
	if err != nil {
		t.Fatal(err)
	}
	begun := func(attempt int) func(e *Event) bool {
		return func(e *Event) bool { return e.Kind == Begun && e.Job == h.ID() && e.Attempt == attempt }
	}
	first := await(t, f.rec, startLimit, "the job's begin", begun(1))
	// Wherever between two heartbeats.
	pause(t.Context(), rand.N(3*time.Second))
	killed, busy := f.rec.Now(), margin()
	f.programs[first.Node].kill()
	second := await(t, f.rec, startLimit, "the job's next attempt", begun(2))
	took, limit := second.At-killed, config.DefaultReplica().HeartbeatLimit
	t.Logf("the job of %s ran on %s %s after the kill; the heartbeat limit is %s", first.Node, second.Node, took.Round(time.Millisecond), limit)
	if took > limit+elsewhereLimit+busy() {
		t.Errorf("the job was without a node for %s, expected at most %s", took, limit+elsewhereLimit)
	}
	if _, err := c.Cancel(t.Context(), h.ID()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	if status, err := h.Wait(ctx); err != nil || status.State != freeslot.StateCancelled {
		t.Errorf("the job ended %s (%v), expected cancelled", status.State, err)
	}
}

// TestRecoveryOfReplica kills the replica of a client whose jobs end at that very time, and
// measures when it has their results through the other one.
func TestRecoveryOfReplica(t *testing.T) {
	rec := NewRecorder()
	f := newFleet(t, rec, t.TempDir(), fleetConfig{replicas: 2, slots: []int{8}, cells: 1})
	c := dialFleet(t, f, "r1")
	const takes = 300 * time.Millisecond
	var handles []*client.Handle
	for n := range 8 {
		task := Task{N: n + 1, TakeMS: int(takes.Milliseconds()) + 20*n, Slots: 1}
		h, err := c.Submit(t.Context(), task.job())
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	// Some have ended by then, some have not; the results of those in between are on their way.
	last := strconv.Itoa(len(handles))
	await(t, rec, startLimit, "the begin of "+last+" jobs", func(e *Event) bool { return e.Kind == Begun && e.N == len(handles) })
	pause(t.Context(), takes+50*time.Millisecond)
	killed, busy := time.Now(), margin()
	f.programs["r1"].kill()
	for _, h := range handles {
		ctx, cancel := context.WithTimeout(t.Context(), startLimit)
		status, err := h.Wait(ctx)
		cancel()
		if err != nil || status.State != freeslot.StateSucceeded {
			t.Errorf("a job ended %s (%v), expected succeeded", status.State, err)
		}
	}
	took := time.Since(killed)
	t.Logf("the client had all results %s after the kill", took.Round(time.Millisecond))
	if took > answerLimit+busy() {
		t.Errorf("the client was without its results for %s, expected at most %s", took, answerLimit)
	}
}
