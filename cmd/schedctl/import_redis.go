package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/redisclient"
)

// importPage is how many nodes one call reads.
const importPage = 100

// open connects to all cells. Nothing is written in a dry run.
func (c *importCmd) open(ctx context.Context) (cells *cell.Set, closeCells func(), err error) {
	if c.Cells < 1 || c.Cells > cell.MaxCells {
		return nil, nil, usage("--cells is %d, expected 1 to %d", c.Cells, cell.MaxCells)
	}
	topology, err := redisclient.Inspect(ctx, c.config())
	if err != nil {
		return nil, nil, fmt.Errorf("redis cannot be used: %w (--redis-url)", c.named(err))
	}
	clients, err := topology.Open(redisclient.Commands)
	if err != nil {
		return nil, nil, fmt.Errorf("redis cannot be used: %w (--redis-url)", c.named(err))
	}
	if cells, err = c.set(topology, clients); err == nil {
		err = checkAll(ctx, cells, c.DryRun)
	}
	if err != nil {
		clients.Close()
		return nil, nil, c.named(err)
	}
	return cells, clients.Close, nil
}

// named says which servers an error is about that does not tell.
func (c *importCmd) named(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	hosts := make([]string, len(c.RedisURL))
	for i, text := range c.RedisURL {
		if u, err := url.Parse(text); err == nil {
			hosts[i] = u.Host // without what is secret
		}
	}
	return fmt.Errorf("no answer in time from redis.url, %s: %w", strings.Join(hosts, " and "), err)
}

func (c *importCmd) set(topology *redisclient.Topology, clients *redisclient.Clients) (*cell.Set, error) {
	all := make([]*cell.Cell, c.Cells)
	for i, layout := range cell.Layouts(c.KeyPrefix, c.Cells, topology.Cluster) {
		var err error
		all[i], err = cell.New(cell.Config{
			Layout: layout, Index: i, Cells: c.Cells, Servers: topology.Servers, HeartbeatLimit: c.HeartbeatLimit,
		}, clients.For(i), zap.NewNop(), nil)
		if err != nil {
			return nil, err
		}
	}
	return cell.NewSet(all...), nil
}

// checkAll refuses servers that cannot be trusted with jobs, another number of cells
// than is recorded, and a cell that does not answer: a list is copied whole. In a dry
// run it records nothing.
func checkAll(ctx context.Context, cells *cell.Set, dryRun bool) error {
	if dryRun {
		return checkRecords(ctx, cells)
	}
	_, down, err := cells.Check(ctx)
	for i, failure := range down {
		err = errors.Join(err, fmt.Errorf("cell %d: %w", i, failure))
	}
	return err
}

// checkRecords says each thing once: cells of one server find the same.
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
	seen := make(map[string]bool)
	return errors.Join(slices.DeleteFunc(found, func(err error) bool {
		again := err == nil || seen[err.Error()]
		if err != nil {
			seen[err.Error()] = true
		}
		return again
	})...)
}

// importer copies nodes into their cells.
type importer struct {
	cells         *cell.Set
	dryRun, force bool
	// limit is the silence after which an agent counts as gone.
	limit  time.Duration
	copied int
	// doubted is how many nodes have agents that are silent, as all are when Redis has just come back. patient is true once
	// they have had the time grace to be heard; waits is told that they get it.
	doubted int
	patient bool
	grace   time.Duration
	waits   func(nodes int)
}

// run returns one result for each entry, in their order.
func (im *importer) run(ctx context.Context, entries []importEntry) ([]importResult, error) {
	results := make([]importResult, len(entries))
	for i, e := range entries {
		results[i] = importResult{NodeID: e.node.ID, Ignored: e.unknown}
		if len(e.refusals) > 0 {
			results[i].refuse(e.refusals)
		}
	}
	if err := im.each(ctx, entries, results, im.copy); err != nil {
		return nil, err
	}
	if im.doubted > 0 {
		im.waits(im.doubted)
		select {
		case <-time.After(im.grace):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		im.patient = true
		if err := im.each(ctx, entries, results, im.copy); err != nil {
			return nil, err
		}
	}
	if err := im.each(ctx, entries, results, im.verify); err != nil {
		return nil, err
	}
	return results, nil
}

// found is a node as Redis has it.
type found struct {
	cell.NodeState
	// now is Redis' clock when it was read.
	now int64
}

// each reads the nodes that are not refused, page by page, and hands each to step.
func (im *importer) each(ctx context.Context, entries []importEntry, results []importResult,
	step func(context.Context, *importEntry, *importResult, *found) error,
) error {
	pages := make([][]int, im.cells.Len()) // by cell: indexes of entries
	flush := func(index int) error {
		err := im.page(ctx, index, pages[index], entries, results, step)
		pages[index] = pages[index][:0]
		return err
	}
	for i := range entries {
		if results[i].Result == importRefused {
			continue
		}
		index := im.cells.OfNode(entries[i].node.ID).Index()
		pages[index] = append(pages[index], i)
		if len(pages[index]) == importPage {
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

func (im *importer) page(ctx context.Context, index int, page []int, entries []importEntry, results []importResult,
	step func(context.Context, *importEntry, *importResult, *found) error,
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

// copy registers the node, unless it is there already or somebody speaks for it, or may do so soon.
func (im *importer) copy(ctx context.Context, e *importEntry, r *importResult, f *found) error {
	if r.Result != "" {
		return nil
	}
	differences := f.differences(e)
	switch {
	case !f.Gone && len(differences) == 0:
		r.Result = importSame
		return nil
	case !f.Gone && f.Epoch != cell.ImportEpoch && !im.force:
		if why := im.spokenFor(f); why != "" {
			r.Result, r.Reason, r.Differences = importLeft, why, differences
			return nil
		}
		if !im.patient && !im.dryRun {
			im.doubted++
			return nil
		}
	}
	if im.dryRun {
		r.Result = importToCopy
		if !f.Gone {
			r.Differences = differences
		}
		return nil
	}
	into := im.cells.OfNode(e.node.ID)
	var err error
	if im.force {
		_, err = into.Register(ctx, e.node, cell.ImportEpoch)
	} else {
		_, err = into.Import(ctx, e.node, f.NodeState)
	}
	if errors.Is(err, cell.ErrSuperseded) {
		r.Result, r.Reason, r.Differences = importLeft, "its agent has just come back", differences
		if f.Gone {
			r.Reason, r.Differences = "an agent has just registered it", nil
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.Result = importCopied
	im.copied++
	return nil
}

// spokenFor says why a node must not be taken from its agent; empty when it may be.
func (im *importer) spokenFor(f *found) string {
	switch silence := time.Duration(f.now-f.LastHeartbeatMS) * time.Millisecond; {
	case silence <= im.limit:
		return "its agent is alive"
	case f.Used > 0:
		return strconv.Itoa(f.Used) + " slots of it are in use"
	}
	return ""
}

// verify compares what was copied with what Redis has now.
func (im *importer) verify(_ context.Context, e *importEntry, r *importResult, f *found) error {
	if r.Result != importCopied {
		return nil
	}
	differences := f.differences(e)
	switch {
	case len(differences) == 0:
	case !f.Gone && f.Epoch != cell.ImportEpoch:
		r.Result, r.Reason, r.Differences = importLeft, "an agent has taken it over", differences
	default:
		r.Result, r.Differences = importDiffers, differences
	}
	return nil
}

// differences are between the list and Redis.
func (f *found) differences(e *importEntry) []locked.Difference {
	switch {
	case f.Gone:
		return []locked.Difference{{Node: e.node.ID, Field: "node", A: "known", B: "absent"}}
	case f.Broken != nil:
		return []locked.Difference{{Node: e.node.ID, Field: "node", A: "readable", B: f.Broken.Error()}}
	}
	return locked.CompareProfiles(&e.node, &f.Node)
}
