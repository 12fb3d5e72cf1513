// Package importer copies a list of nodes into Redis, and verifies the copy.
package importer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
)

// pageSize is the number of nodes that one call reads.
const pageSize = 100

// Check refuses servers that cannot be trusted with jobs, a number of cells other than the recorded
// one, and a cell that does not answer: a list is copied as a whole. In a dry run it records
// nothing.
func Check(ctx context.Context, cells *cell.Set, dryRun bool) error {
	if dryRun {
		return checkRecords(ctx, cells)
	}
	_, down, err := cells.Check(ctx)
	for i, failure := range down {
		err = errors.Join(err, fmt.Errorf("cell %d: %w", i, failure))
	}
	return err
}

// checkRecords reports each error once: cells of one server find the same.
func checkRecords(ctx context.Context, cells *cell.Set) error {
	all := cells.All()
	found := make([]error, len(all))
	var checks sync.WaitGroup
	for i, c := range all {
		checks.Go(func() {
			if _, found[i] = c.CheckServers(ctx); found[i] == nil {
				found[i] = c.CheckRecord(ctx)
			}
		})
	}
	checks.Wait()
	var distinct error
	seen := make(map[string]bool)
	for _, err := range found {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			distinct = errors.Join(distinct, err)
		}
	}
	return distinct
}

// Options control an import.
type Options struct {
	// DryRun writes nothing.
	DryRun bool
	// Force takes nodes from their agents, too. Their jobs end as node_lost, and the agents exit.
	Force bool
	// HeartbeatLimit is the silence after which an agent counts as gone.
	HeartbeatLimit time.Duration
	// Waits is called before Run waits for HeartbeatLimit, with the number of nodes with silent
	// agents. After an outage of Redis all agents are silent for a moment.
	Waits func(nodes int)
}

// Run copies nodes into their cells, reads them back, and returns one result for each entry, in
// order. After an error the copied nodes stay, as the results show; another run finds them to be
// the same.
func Run(ctx context.Context, cells *cell.Set, entries []Entry, options Options) ([]Result, error) {
	im := importer{Options: options, cells: cells, grace: options.HeartbeatLimit}
	return im.run(ctx, entries)
}

type importer struct {
	Options
	cells *cell.Set
	// doubted is the number of nodes with silent agents. patient is true once these have had the
	// time grace to send a heartbeat.
	doubted int
	patient bool
	grace   time.Duration
}

func (im *importer) run(ctx context.Context, entries []Entry) ([]Result, error) {
	results := make([]Result, len(entries))
	for i, e := range entries {
		results[i] = Result{NodeID: e.node.ID, Ignored: e.unknown}
		if len(e.refusals) > 0 {
			results[i].refuse(e.refusals)
		}
	}
	if err := im.each(ctx, entries, results, im.copy); err != nil {
		return results, err
	}
	if im.doubted > 0 {
		im.Waits(im.doubted)
		select {
		case <-time.After(im.grace):
		case <-ctx.Done():
			return results, ctx.Err()
		}
		im.patient = true
		if err := im.each(ctx, entries, results, im.copy); err != nil {
			return results, err
		}
	}
	return results, im.each(ctx, entries, results, im.verify)
}

// found is a node as Redis has it.
type found struct {
	cell.NodeState
	// now is Redis' clock when it was read.
	now int64
}

// each reads the nodes that are not refused, page by page, and calls step for each.
func (im *importer) each(ctx context.Context, entries []Entry, results []Result,
	step func(context.Context, *Entry, *Result, *found) error,
) error {
	pages := make([][]int, im.cells.Len()) // by cell: indexes of entries
	flush := func(index int) error {
		err := im.page(ctx, index, pages[index], entries, results, step)
		pages[index] = pages[index][:0]
		return err
	}
	for i := range entries {
		if results[i].Result == Refused {
			continue
		}
		index := im.cells.OfNode(entries[i].node.ID).Index()
		pages[index] = append(pages[index], i)
		if len(pages[index]) == pageSize {
			if err := flush(index); err != nil {
				return err
			}
		}
	}
	for index := range pages {
		if len(pages[index]) > 0 {
			if err := flush(index); err != nil {
				return err
			}
		}
	}
	return nil
}

func (im *importer) page(ctx context.Context, index int, page []int, entries []Entry, results []Result,
	step func(context.Context, *Entry, *Result, *found) error,
) error {
	ids := make([]string, len(page))
	for k, i := range page {
		ids[k] = entries[i].node.ID
	}
	answer, err := im.cells.At(index).Nodes(ctx, ids)
	if err != nil {
		return err
	}
	if len(answer.Nodes) != len(page) {
		return fmt.Errorf("read %d nodes: the answer has %d", len(page), len(answer.Nodes))
	}
	for k, i := range page {
		if err := step(ctx, &entries[i], &results[i], &found{NodeState: answer.Nodes[k], now: answer.NowMS}); err != nil {
			return err
		}
	}
	return nil
}

// copy registers the node, unless it is there already, or has an agent, or its agent may come back
// soon.
func (im *importer) copy(ctx context.Context, e *Entry, r *Result, f *found) error {
	if r.Result != "" {
		return nil
	}
	differences := f.differences(e)
	switch {
	case !f.Gone && len(differences) == 0:
		r.Result = Same
		return nil
	case !f.Gone && f.Epoch != cell.ImportEpoch && !im.Force:
		if why := im.spokenFor(f); why != "" {
			r.Result, r.Reason, r.Differences = Left, why, differences
			return nil
		}
		if !im.patient && !im.DryRun {
			im.doubted++
			return nil
		}
	}
	if im.DryRun {
		r.Result = ToCopy
		if !f.Gone {
			r.Differences = differences
		}
		return nil
	}
	into := im.cells.OfNode(e.node.ID)
	var err error
	if im.Force {
		_, err = into.Register(ctx, e.node, cell.ImportEpoch)
	} else {
		_, err = into.Import(ctx, e.node, f.NodeState)
	}
	if errors.Is(err, cell.ErrSuperseded) {
		r.Result, r.Reason, r.Differences = Left, "its agent has just come back", differences
		if f.Gone {
			r.Reason, r.Differences = "an agent has just registered it", nil
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.Result = Copied
	return nil
}

// spokenFor returns the reason that a node must not be taken from its agent; empty if it may be
// taken.
func (im *importer) spokenFor(f *found) string {
	switch silence := time.Duration(f.now-f.LastHeartbeatMS) * time.Millisecond; {
	case silence <= im.HeartbeatLimit:
		return "its agent is alive"
	case f.Used > 0:
		return strconv.Itoa(f.Used) + " slots of it are in use"
	}
	return ""
}

// verify compares the copied nodes with those in Redis.
func (im *importer) verify(_ context.Context, e *Entry, r *Result, f *found) error {
	if r.Result != Copied {
		return nil
	}
	differences := f.differences(e)
	switch {
	case len(differences) == 0:
	case !f.Gone && f.Epoch != cell.ImportEpoch:
		r.Result, r.Reason, r.Differences = Left, "an agent has taken it over", differences
	default:
		r.Result, r.Differences = Differs, differences
	}
	return nil
}

// differences returns the differences between the list and Redis.
func (f *found) differences(e *Entry) []locked.Difference {
	switch {
	case f.Gone:
		return []locked.Difference{{Node: e.node.ID, Field: "node", A: "known", B: "absent"}}
	case f.Broken != nil:
		return []locked.Difference{{Node: e.node.ID, Field: "node", A: "readable", B: f.Broken.Error()}}
	}
	return locked.CompareProfiles(&e.node, &f.Node)
}
