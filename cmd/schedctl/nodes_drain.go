package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

const (
	// drainPause is the pause between two questions about nodes that drain.
	drainPause = 500 * time.Millisecond
	// exitStillRuns is EX_TEMPFAIL of sysexits.h: wait again.
	exitStillRuns = 75
	// namedJobs is the number of jobs of a node that a message names.
	namedJobs = 10
)

type drainCmd struct {
	IDs         []string      `arg:"" name:"node-id" help:"The nodes."`
	Wait        bool          `short:"w" help:"Wait until no job runs on the nodes any more. A node that has left runs none."`
	WaitTimeout time.Duration `placeholder:"DURATION" help:"With --wait: stop waiting after this time; the exit code is 75 if jobs still run. They go on, and the nodes stay drained."`
}

// Help is shown below the flags.
func (drainCmd) Help() string {
	return `Examples:
  schedctl nodes drain gpu-7
  schedctl nodes drain gpu-7 gpu-8 --wait --wait-timeout 10m && shut-down gpu-7 gpu-8`
}

// drainedNode is a node after the wait, for programs.
type drainedNode struct {
	ID     string `json:"node_id"`
	Status string `json:"status"` // drained, or gone if the node has left
	// Jobs holds the first jobs that still run; absent if none does.
	Jobs []freeslot.JobStatus `json:"jobs,omitempty"`
	// used is the number of slots in use when the jobs were read, and shown the last message.
	used  int
	shown string
}

const statusGone = "gone"

// Run keeps new jobs from nodes.
func (c *drainCmd) Run(a *app) error {
	if c.WaitTimeout > 0 && !c.Wait {
		return usage("--wait-timeout is %s, expected it beside --wait", c.WaitTimeout)
	}
	var limit <-chan time.Time
	if c.WaitTimeout > 0 {
		limit = time.After(c.WaitTimeout)
	}
	ids := slices.Compact(slices.Sorted(slices.Values(c.IDs)))
	changes := make([]api.NodeChange, 0, len(ids))
	var failed []error
	for _, id := range ids {
		change, err := a.changeNode(http.MethodPost, id, "/drain", nil)
		if err != nil {
			failed = append(failed, fmt.Errorf("node %s: %w", id, err))
			continue
		}
		changes = append(changes, change)
		if a.json {
			continue
		}
		if err := a.printChange(&change); err != nil {
			return err
		}
	}
	switch {
	case len(failed) == 1 && len(ids) == 1:
		return errors.Unwrap(failed[0])
	case len(failed) > 0:
		return errors.Join(failed...)
	case c.Wait:
		return c.await(a, ids, limit)
	case a.json && len(changes) == 1:
		return a.printJSON(changes[0])
	case a.json:
		return a.printJSON(changes)
	}
	return nil
}

// await returns once the nodes run nothing, or with exitStillRuns after the limit.
func (c *drainCmd) await(a *app, ids []string, limit <-chan time.Time) error {
	nodes := make([]drainedNode, len(ids))
	left := make([]*drainedNode, len(ids))
	for i, id := range ids {
		nodes[i] = drainedNode{ID: id, Status: string(freeslot.StatusDrained), used: -1}
		left[i] = &nodes[i]
	}
	var silent error // the last question had no answer
	for {
		var err error
		left = slices.DeleteFunc(left, func(n *drainedNode) (idle bool) {
			if err == nil {
				idle, err = a.look(n)
			}
			return idle
		})
		switch {
		case err != nil && !temporary(err):
			return err
		case err != nil && silent == nil:
			a.warn("%v; the wait goes on", clean(err.Error()))
		}
		silent = err
		if len(left) == 0 {
			break
		}
		over, err := a.restOr(drainPause, limit)
		if err != nil {
			return err
		}
		if over {
			return c.stillRuns(a, nodes, left, silent)
		}
	}
	if a.json {
		return a.printJSON(nodes)
	}
	return nil
}

// stillRuns is the end of a wait that took too long.
func (c *drainCmd) stillRuns(a *app, nodes []drainedNode, left []*drainedNode, silent error) error {
	var lines []string
	for _, n := range left {
		if jobs, err := a.running(n.ID); err == nil {
			n.Jobs = jobs
		}
		lines = append(lines, n.describe())
	}
	if silent != nil {
		lines = append(lines, "the last question had no answer: "+silent.Error())
	}
	if a.json {
		if err := a.printJSON(nodes); err != nil {
			return err
		}
	}
	return exitError{exitStillRuns, fmt.Errorf(
		"after %s jobs still run; they go on, and the nodes stay drained: %s", c.WaitTimeout, strings.Join(lines, "; "),
	)}
}

// describe says what the node still runs.
func (n *drainedNode) describe() string {
	if len(n.Jobs) == 0 {
		return n.ID + " did not say in time what it runs"
	}
	names := make([]string, 0, namedJobs+1)
	for i := range n.Jobs[:min(len(n.Jobs), namedJobs)] {
		names = append(names, fmt.Sprintf("%s (%s)", n.Jobs[i].ID, n.Jobs[i].Service))
	}
	if more := len(n.Jobs) - namedJobs; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s runs %s: %s", n.ID, plural.Of(len(n.Jobs), "job", "jobs"), strings.Join(names, " "))
}

// look asks what a node runs. It warns of a change, and returns true if nothing runs any more.
func (a *app) look(n *drainedNode) (idle bool, err error) {
	var now api.NodeStatus
	err = a.call(http.MethodGet, "/v1/nodes/"+url.PathEscape(n.ID), url.Values{"checked": {"true"}}, nil, &now)
	switch {
	case freeslot.CodeOf(err) == freeslot.CodeNotFound:
		n.Status, n.Jobs = statusGone, nil
		return true, nil
	case err != nil:
		return false, err
	case now.Checked != "fresh": // Redis did not answer in time, so the node's state may be an old one
		return false, nil
	case now.Status == freeslot.StatusOnline:
		return false, fmt.Errorf("node %s is not drained any more: an undrain came in between", n.ID)
	case now.Used == n.used && now.Used > 0:
		return false, nil
	}
	// Slots in use that the replica remembers can be a heartbeat old. This reads them in Redis.
	if n.Jobs, err = a.running(n.ID); err != nil {
		return false, err
	}
	if n.used = now.Used; n.used == 0 && len(n.Jobs) == 0 {
		return true, nil
	}
	if text := n.describe(); len(n.Jobs) > 0 && text != n.shown {
		n.shown = text
		a.warn("%s", clean(text))
	}
	return false, nil
}

// running returns the first jobs that occupy slots of a node.
func (a *app) running(node string) (jobs []freeslot.JobStatus, err error) {
	for _, state := range []freeslot.State{freeslot.StateRunning, freeslot.StateCancelling} {
		page, err := a.jobPage(url.Values{"node": {node}, "state": {string(state)}})
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page.Jobs...)
	}
	return jobs, nil
}

// temporary reports whether the same question can have an answer later.
func temporary(err error) bool {
	return errors.As(err, new(*unreachableError)) || freeslot.CodeOf(err) == freeslot.CodeUnavailable
}

// restOr waits for d. It returns true if limit came first; a nil limit never comes.
func (a *app) restOr(d time.Duration, limit <-chan time.Time) (over bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.ctx.Done():
		return false, a.ctx.Err()
	case <-limit:
		return true, nil
	case <-timer.C:
		return false, nil
	}
}
