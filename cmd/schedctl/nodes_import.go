package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/cmd/schedctl/importer"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/plural"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

type importCmd struct {
	File string `arg:"" name:"file" help:"JSON array of nodes, or an object that has it as \"nodes\"; - is standard input."`
	redisFlags
	KeyPrefix      string        `default:"scheduler" env:"FREESLOT_REDIS__KEY_PREFIX" placeholder:"PREFIX" help:"First part of every key (default ${default})."`
	Cells          int           `default:"1" env:"FREESLOT_REDIS__CELLS" placeholder:"N" help:"Number of cells of the system, redis.cells (default ${default})."`
	HeartbeatLimit time.Duration `default:"8s" env:"FREESLOT_HEARTBEAT_LIMIT" placeholder:"TIME" help:"Silence after which an agent counts as gone (default ${default})."`
	DryRun         bool          `help:"Only print what would be done."`
	lockPrefix
	Force bool `help:"Also take over nodes that have an agent or jobs: the jobs end as node_lost, and the agent exits."`
}

// importTimeout bounds a whole import, in addition to the limits of its calls.
const importTimeout = 30 * time.Minute

// Help is shown below the flags.
func (importCmd) Help() string {
	return `One import at a time: it holds the lock nodes-import:PREFIX ("schedctl lock ls" shows it). PREFIX is the --key-prefix.`
}

// Run copies the list and reads it back. After an error the copied nodes stay; another run finds
// them to be the same.
func (c *importCmd) Run(a *app) error {
	entries, err := c.read(a.in)
	if err != nil {
		return usage("%s %w", c.File, err)
	}
	ctx, cancel := context.WithTimeout(a.ctx, importTimeout)
	defer cancel()
	cells, closeCells, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer closeCells()
	ctx, unlock, err := c.lock(ctx, a)
	if err != nil {
		return err
	}
	defer unlock()
	results, err := c.copy(ctx, a, cells, entries)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the lock was lost, for example
	}
	if err != nil {
		return fmt.Errorf(
			"%w (%s copied before; run it again)", c.named(err),
			plural.Of(importer.Count(results)[importer.Copied], "node was", "nodes were"),
		)
	}
	if err := a.printImport(results); err != nil {
		return err
	}
	return importer.Failure(results, c.DryRun)
}

// copy imports the nodes. The audit has an entry of it, unless it is a dry run.
func (c *importCmd) copy(
	ctx context.Context, a *app, cells *cell.Set, entries []importer.Entry,
) (results []importer.Result, err error) {
	if !c.DryRun {
		nodes := plural.Of(len(entries), "node", "nodes")
		change := a.record(ctx, cells.Runners()[0], &c.redisFlags, callImportNodes, nodes+" of "+c.File)
		defer func() {
			change.Note("", importer.Summary(results))
			change.End(ctx, outcomeOf(cmp.Or(err, importer.Failure(results, false))))
		}()
	}
	return importer.Run(ctx, cells, entries, importer.Options{
		DryRun: c.DryRun, Force: c.Force, HeartbeatLimit: c.HeartbeatLimit,
		Waits: func(nodes int) {
			_, _ = fmt.Fprintf(
				a.err, "%s silent: waiting %s, so that they are heard if it was Redis that was away\n",
				plural.Of(nodes, "node has an agent that is", "nodes have agents that are"), c.HeartbeatLimit,
			)
		},
	})
}

// lock keeps other imports out until unlock: two imports of different lists would each undo what
// the other did. ctx ends if the lock is lost. A dry run changes nothing and needs no lock.
func (c *importCmd) lock(ctx context.Context, a *app) (held context.Context, unlock func(), err error) {
	if c.DryRun {
		return ctx, func() {}, nil
	}
	m, err := newLockManager(&c.redisFlags, c.LockKeyPrefix)
	if err != nil {
		return nil, nil, err
	}
	l, err := m.Get(lock.Config{Key: "nodes-import:" + c.KeyPrefix})
	if err == nil {
		err = startLockManager(ctx, m)
	}
	var h *lock.Held
	if err == nil {
		h, err = l.TryLock(ctx, 0)
	}
	if err != nil {
		stopLockManager(m)
		if errors.Is(err, lock.ErrNotAcquired) {
			err = fmt.Errorf("another import is under way: %w", err)
		}
		return nil, nil, err
	}
	return h.Context(), func() {
		_ = h.Unlock(ctx) // if this fails, the lock runs out
		a.awaitGivenBack(m)
		stopLockManager(m)
	}, nil
}

func (c *importCmd) read(in io.Reader) ([]importer.Entry, error) {
	if c.File == "-" {
		return importer.Read(in)
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	return importer.Read(f)
}

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
		err = importer.Check(ctx, cells, c.DryRun)
	}
	if err != nil {
		clients.Close()
		return nil, nil, c.named(err)
	}
	return cells, clients.Close, nil
}

// named adds the servers to an error that does not name them.
func (c *importCmd) named(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	hosts := make([]string, len(c.RedisURL))
	for i, text := range c.RedisURL {
		if u, err := url.Parse(text); err == nil {
			hosts[i] = u.Host // without secrets
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

func (a *app) printImport(results []importer.Result) error {
	if a.json {
		return a.printJSON(map[string]any{"nodes": results, "counts": importer.Count(results)})
	}
	rows := [][]string{{"NODE", "RESULT", "WHY"}}
	for _, r := range results {
		rows = append(rows, []string{dash(r.NodeID), r.Result, dash(r.Why())})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	return a.println("%s", importer.Summary(results))
}
