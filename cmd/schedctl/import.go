package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache/locked"
)

// nodesGroup is "nodes", which lists them unless a further word says otherwise.
type nodesGroup struct {
	Show    nodesCmd   `cmd:"" default:"withargs" help:"List nodes, or show one."`
	Drain   drainCmd   `cmd:"" help:"Give a node no more jobs, until undrain."`
	Undrain undrainCmd `cmd:"" help:"Give a drained node jobs again."`
	Remove  removeCmd  `cmd:"" help:"Forget a node that has no agent."`
	Import  importCmd  `cmd:"" help:"Copy a node list into Redis, and verify the copy."`
}

type importCmd struct {
	File string `arg:"" name:"file" help:"JSON array of nodes, or an object that has it as \"nodes\"; - is standard input."`
	redisFlags
	KeyPrefix      string        `default:"scheduler" env:"FREESLOT_REDIS__KEY_PREFIX" placeholder:"PREFIX" help:"First part of every key (default ${default})."`
	Cells          int           `default:"1" env:"FREESLOT_REDIS__CELLS" placeholder:"N" help:"Number of cells of the system, redis.cells (default ${default})."`
	HeartbeatLimit time.Duration `default:"8s" env:"FREESLOT_HEARTBEAT_LIMIT" placeholder:"TIME" help:"Silence after which an agent counts as gone (default ${default})."`
	DryRun         bool          `help:"Only say what would be done."`
	Force          bool          `help:"Also take over nodes that an agent speaks for or that have jobs: those end as node_lost, and the agent exits."`
}

// importTimeout bounds the whole of an import, besides the limits of its calls.
const importTimeout = 30 * time.Minute

// What became of one node.
const (
	importCopied  = "copied"
	importToCopy  = "to copy"
	importSame    = "same"
	importDiffers = "differs"
	importRefused = "refused"
	importLeft    = "left"
)

// importResult is what became of one node.
type importResult struct {
	NodeID string `json:"node_id"`
	Result string `json:"result"`
	// Field and Reason are of a refusal, the first where Errors has all; Reason alone is
	// of a node that was left.
	Field  string                `json:"field,omitempty"`
	Reason string                `json:"reason,omitempty"`
	Errors []freeslot.FieldError `json:"errors,omitempty"`
	// Differences are between the list (a) and Redis (b): after the copy, or before it
	// in a dry run.
	Differences []locked.Difference `json:"differences,omitempty"`
	// Ignored are fields that mean nothing here.
	Ignored []string `json:"ignored,omitempty"`
}

// Run copies the list and reads it back. Whatever it did before an error stays, and
// is found to be the same when it is run again.
func (c *importCmd) Run(a *app) error {
	defer a.api.close()
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
	im := &importer{cells: cells, dryRun: c.DryRun, force: c.Force, limit: c.HeartbeatLimit, grace: c.HeartbeatLimit}
	im.waits = func(nodes int) {
		_, _ = fmt.Fprintf(a.err, "%d nodes have agents that are silent: waiting %s, so that they are heard if it was Redis that was away\n", nodes, im.grace)
	}
	results, err := im.run(ctx, entries)
	if err != nil {
		return fmt.Errorf("%w (%d nodes were copied before; run it again)", c.named(err), im.copied)
	}
	if err := a.printImport(results); err != nil {
		return err
	}
	return failure(results, c.DryRun)
}

func (c *importCmd) read(in io.Reader) ([]importEntry, error) {
	if c.File == "-" {
		return readNodeList(in)
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	return readNodeList(f)
}

// failure is an error when something is not in Redis as the list has it. A node that
// was left to its agent is not such: the agent knows better.
func failure(results []importResult, dryRun bool) error {
	counts := countImport(results)
	if counts[importDiffers]+counts[importRefused] == 0 {
		return nil
	}
	what, verb := []string{importLeft, importDiffers, importRefused}, "are not in Redis as the list has them"
	if dryRun {
		verb = "would not be in Redis as the list has them"
	}
	not := 0
	for _, result := range what {
		not += counts[result]
	}
	return fmt.Errorf("%d of %d nodes %s: %s", not, len(results), verb, sayCounts(counts, what...))
}

// sayCounts lists the results that there are.
func sayCounts(counts map[string]int, results ...string) string {
	parts := make([]string, 0, len(results))
	for _, result := range results {
		if counts[result] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[result], result))
		}
	}
	return strings.Join(parts, ", ")
}

func countImport(results []importResult) map[string]int {
	counts := make(map[string]int)
	for _, r := range results {
		counts[r.Result]++
	}
	return counts
}

func (a *app) printImport(results []importResult) error {
	if a.json {
		return a.printJSON(map[string]any{"nodes": results, "counts": countImport(results)})
	}
	rows := [][]string{{"NODE", "RESULT", "WHY"}}
	for _, r := range results {
		rows = append(rows, []string{dash(r.NodeID), r.Result, dash(r.why())})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "%d nodes: %s\n", len(results),
		sayCounts(countImport(results), importCopied, importToCopy, importSame, importLeft, importDiffers, importRefused))
	return err
}

// refuse takes over what is wrong with the node, of which there is something.
func (r *importResult) refuse(refusals []importRefusal) {
	r.Result, r.Field, r.Reason = importRefused, refusals[0].field, refusals[0].reason
	for _, bad := range refusals {
		r.Errors = append(r.Errors, freeslot.FieldError{Field: bad.field, Message: bad.field + " " + bad.reason})
	}
}

func (r *importResult) why() string {
	var parts []string
	for _, e := range r.Errors {
		parts = append(parts, e.Message)
	}
	if r.Reason != "" && len(r.Errors) == 0 {
		parts = append(parts, r.Reason)
	}
	for _, d := range r.Differences {
		parts = append(parts, fmt.Sprintf("%s is %s in the list, %s in Redis", d.Field, shorten(d.A, maxCell), shorten(d.B, maxCell)))
	}
	if len(r.Ignored) > 0 {
		parts = append(parts, "not read: "+strings.Join(r.Ignored, ", "))
	}
	return strings.Join(slices.Compact(parts), "; ")
}
