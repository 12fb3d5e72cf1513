package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
)

const (
	followedList    = "followed"
	followedIDs     = 100_000
	followers       = 100
	followProcesses = 4
	editEvery       = 20 * time.Millisecond
)

func runFollow(ctx context.Context, b *tool.Bench, d *bed) {
	ids, clients := tool.Sized(b, followedIDs, 1000), tool.Sized(b, followers, 8)
	b.Say("%d clients in %d processes follow a list of %s ids. It switches between two versions %d times, each once all clients "+
		"have loaded the next. The time runs from before the call that moves the pointer until the last client's `Check` of a "+
		"member has answered from the new version. Then it gets %d edits of one entry, %s after each other or more, which are "+
		"timed in the same way. A client asks when its `OnChange` is called.",
		clients, followProcesses, thousands(ids), d.switches, d.edits, editEvery)
	versions := d.twoVersions(ctx, followedList, ids)
	var children tool.Children
	defer tool.End(children.End)
	for range followProcesses {
		children = append(children, startClients(ctx, d, clients/followProcesses))
	}
	tool.AskAll[answer](ctx, children, 0, request{Do: "follow", List: followedList})
	var switches, edits []float64
	for i := range d.switches {
		number := versions[(i+1)%2]
		at, revision := d.switchTo(ctx, followedList, number, clients)
		switches = append(switches, lastOf(ctx, children, at, request{Do: "seen", Version: number, Revision: revision}))
	}
	for i := range d.edits {
		at := time.Now()
		revision := d.editOne(ctx, followedList, ids+i)
		edits = append(edits, lastOf(ctx, children, at, request{Do: "seen", Revision: revision}))
		tool.Sleep(ctx, time.Until(at.Add(editEvery)))
	}
	t := result.NewTable(fmt.Sprintf("To the last of %d clients", clients), "p50 [ms]", "p99 [ms]", "longest [ms]", "times")
	for _, row := range []struct {
		name  string
		times []float64
		limit float64
	}{{"a switch", switches, 50}, {"an edit", edits, 20}} {
		p99 := measure.Quantile(row.times, 0.99)
		t.Add(row.name, measure.Median(row.times), p99, measure.Quantile(row.times, 1), len(row.times))
		what := fmt.Sprintf("%s to the last of %d clients, p99", row.name, clients)
		b.Target(what, result.Milliseconds, result.AtMost, row.limit, p99)
	}
	b.Result.Tables = []result.Table{t}
}

func (d *bed) editOne(ctx context.Context, list string, i int) (revision int64) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	changes := []lists.Change{{Entry: lists.Entry{ID: idOf(i)}}}
	return tool.Must(d.lists.Edit(ctx, list, lists.EditRequest{Changes: changes, By: by}))
}

// lastOf asks all children, and returns how many ms after at the last one has seen it.
func lastOf(ctx context.Context, children tool.Children, at time.Time, r request) (ms float64) {
	last := int64(0)
	for _, a := range tool.AskAll[answer](ctx, children, 0, r) {
		last = max(last, a.AtNS)
	}
	return float64(last-at.UnixNano()) / 1e6
}
