package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
)

const (
	followedList    = "followed"
	followedIDs     = 100_000
	followers       = 100
	followProcesses = 4
	editEvery       = 20 * time.Millisecond
)

func runFollow(ctx context.Context, b *tool.Bench, d *bed) (err error) {
	ids, clients := tool.Sized(b, followedIDs, 1000), tool.Sized(b, followers, 8)
	b.Say("%d clients in %d processes follow a list of %s ids. It switches between two versions %d times, each once all clients have loaded the next. The time runs from before the call that moves the pointer until the last client's `Check` of a member has answered from the new version. Then it gets %d edits of one entry, %s after each other or more, which are timed in the same way. A client asks when its `OnChange` is called.", clients, followProcesses, thousands(ids), d.switches, d.edits, editEvery)
	versions, err := d.twoVersions(ctx, followedList, ids)
	if err != nil {
		return err
	}
	var children []*measure.Child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.End())
		}
	}()
	for range followProcesses {
		c, err := startChild(ctx, d, clients/followProcesses)
		if err != nil {
			return err
		}
		children = append(children, c)
		if _, err := ask(ctx, c, request{Do: "follow", List: followedList}); err != nil {
			return err
		}
	}
	var switches, edits []float64
	for i := range d.switches {
		number := versions[(i+1)%2]
		at, revision, err := d.switchTo(ctx, followedList, number, clients)
		if err != nil {
			return err
		}
		took, err := lastOf(ctx, children, at, request{Do: "seen", Version: number, Revision: revision})
		if err != nil {
			return err
		}
		switches = append(switches, took)
	}
	for i := range d.edits {
		at := time.Now()
		revision, err := d.editOne(ctx, followedList, ids+i)
		if err != nil {
			return err
		}
		took, err := lastOf(ctx, children, at, request{Do: "seen", Revision: revision})
		if err != nil {
			return err
		}
		edits = append(edits, took)
		if err := measure.SleepUntil(ctx, at.Add(editEvery)); err != nil {
			return err
		}
	}
	t := result.Table{First: fmt.Sprintf("To the last of %d clients", clients), Columns: []result.Column{
		{Name: "p50", Unit: result.Milliseconds}, {Name: "p99", Unit: result.Milliseconds}, {Name: "longest", Unit: result.Milliseconds}, {Name: "times"},
	}}
	for _, row := range []struct {
		name  string
		times []float64
		limit float64
	}{{"a switch", switches, 50}, {"an edit", edits, 20}} {
		p99 := measure.Quantile(row.times, 0.99)
		t.Rows = append(t.Rows, result.Row{Name: row.name, Figures: result.Figures(measure.FourFigures(measure.Median(row.times)), measure.FourFigures(p99), measure.FourFigures(measure.Quantile(row.times, 1)), float64(len(row.times)))})
		b.Target(fmt.Sprintf("%s to the last of %d clients, p99", row.name, clients), result.Milliseconds, result.AtMost, row.limit, p99)
	}
	b.Result.Tables = []result.Table{t}
	return nil
}

// twoVersions makes a list with two versions. The first one serves.
func (d *bed) twoVersions(ctx context.Context, list string, ids int) (numbers []int64, err error) {
	r, err := d.anyReplica(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.create(ctx, list, filter.Fuse); err != nil {
		return nil, err
	}
	for range 2 {
		i, err := d.load(ctx, r, list, ids, false)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, i.version.Number)
	}
	_, _, err = d.switchTo(ctx, list, numbers[0], 0)
	return numbers, err
}

func (d *bed) editOne(ctx context.Context, list string, i int) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return d.lists.Edit(ctx, list, lists.EditRequest{Changes: []lists.Change{{Entry: lists.Entry{ID: idOf(i)}}}, By: by})
}

// lastOf asks all children, and returns how many ms after at the last one has seen it.
func lastOf(ctx context.Context, children []*measure.Child, at time.Time, r request) (ms float64, err error) {
	answers, errs := make([]answer, len(children)), make([]error, len(children))
	var all sync.WaitGroup
	for i, c := range children {
		all.Go(func() { answers[i], errs[i] = ask(ctx, c, r) })
	}
	all.Wait()
	last := int64(0)
	for _, a := range answers {
		last = max(last, a.AtNS)
	}
	return float64(last-at.UnixNano()) / 1e6, errors.Join(errs...)
}
