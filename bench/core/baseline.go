package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cache/locked"
)

// flatOutMessages bounds the events of a window at full speed; where they are used up the window's rate is
// that of the time they took.
const flatOutMessages = 1_500_000

// rival is a picture at one rate of events.
type rival struct {
	choiceRun
	picture picture
	due     int
}

func runBaseline(ctx context.Context, b *bench) error {
	nodes := sized(b, 10_000, 1_000)
	rounds, window := sized(b, 7, 1), sized(b, time.Second, 60*time.Millisecond)
	b.say("The choices and events of the scenario choose, %s nodes. Cache: what replicas use. locked.State: a management lock, a snapshot that is copied on each heartbeat, a members cache. Plain: one map under one RWMutex.", measure.Thousands(float64(nodes)))
	b.say("At %s events/s due, and with as many as each can apply beside a goroutine that chooses without pause. %d windows of %s, in turns; medians.", measure.Thousands(eventRate), rounds, window)
	b.sayBound()
	states := fleetStates(nodes)
	f, err := newFedCache(ctx, states)
	if err != nil {
		return err
	}
	names := []string{"cache", "locked.State", "plain"}
	pictures := []picture{
		&cachePicture{fedCache: f, nodes: nodes},
		newLockedPicture(stateFleet{locked.New(locked.Config{Selection: benchConfig()})}, states),
		newLockedPicture(newPlainFleet(benchConfig()), states),
	}
	for _, p := range pictures {
		defer p.stop()
	}
	var rivals []*rival
	for _, rate := range []int{eventRate, flatOut} {
		for i, p := range pictures {
			name := names[i] + ", as many events as it can apply"
			if rate != flatOut {
				name = fmt.Sprintf("%s, %s events/s due", names[i], measure.Thousands(float64(rate)))
			}
			rivals = append(rivals, &rival{choiceRun: choiceRun{name: name, nodes: nodes, rate: rate, want: 1, fed: true}, picture: p, due: rate})
		}
	}
	requirements, timer := requirementsOf(requirementCount, mix...), newBlockTimer()
	for range rounds {
		for _, r := range rivals {
			if err := r.window(ctx, r.picture, requirements, timer, window); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return reportRivals(b, rivals)
}

func reportRivals(b *bench, rivals []*rival) error {
	t := result.Table{First: "Picture", Columns: []result.Column{
		{Name: "events applied", Unit: result.PerSecond},
		{Name: "share of those due", Unit: result.Percent},
		{Name: "median a choice", Unit: result.Nanoseconds},
		{Name: "p99 a choice", Unit: result.Nanoseconds},
		{Name: "p99.9 of a block", Unit: result.Microseconds},
		{Name: "longest block", Unit: result.Microseconds},
	}}
	var failed error
	for _, r := range rivals {
		applied := median(r.applied)
		values := result.Values(rounded(applied), 0, rounded(median(r.median)), rounded(median(r.p99)), rounded(median(r.p999)), rounded(median(r.longest)))
		values[1] = nil
		if r.due != flatOut {
			share := rounded(100 * applied / float64(r.due))
			values[1] = &share
		}
		t.Rows = append(t.Rows, result.Row{Name: r.name, Values: values})
		if r.missed > 0 {
			failed = errors.Join(failed, fmt.Errorf("%s: %d choices found no node", r.name, r.missed))
		}
	}
	b.result.Tables = []result.Table{t}
	return failed
}
