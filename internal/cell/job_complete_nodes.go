package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// Bounds of a call of complete_nodes.lua. They keep it under 3 ms.
const (
	sharedNodes = 32
	sharedItems = 64
	sharedBytes = 256 << 10
	// sharedText is the most bytes of a result or a failure.
	sharedText = 64 << 10
)

// SharedOutcome says what CompleteNodes did with a completion.
type SharedOutcome uint8

const (
	// SharedAlone says that nothing was changed for the node. End the attempt by CompleteNode.
	SharedAlone SharedOutcome = iota
	// SharedCompleted is as Completed.
	SharedCompleted
	// SharedUnknown says that Redis answered with an error, so the call may have been carried out in
	// part. End the attempt by CompleteNode, and let the node send a heartbeat.
	SharedUnknown
)

// Plain reports whether CompleteNodes may be able to end the attempt.
func (c *Completion) Plain() bool {
	return c.Next == Never && c.Attempt.N == 1 && len(c.Result) <= sharedText && c.failureSize() <= sharedText &&
		(c.State == freeslot.StateSucceeded && c.Error == nil || c.State == freeslot.StateFailed && len(c.Result) == 0)
}

func (c *Completion) failureSize() int {
	if c.Error == nil {
		return 0
	}
	return len(c.Error.Code) + len(c.Error.Message)
}

// size returns about how many bytes a completion adds to a call.
func (c *Completion) size() int { return len(c.Result) + c.failureSize() + controlOverhead }

// FitNodes returns how many of the first completions one call of CompleteNodes takes: at least one.
func FitNodes(comps []Completion) int {
	nodes, bytes := make(map[string]struct{}, sharedNodes), 0
	for i := range comps {
		nodes[comps[i].Node] = struct{}{}
		bytes += comps[i].size()
		if i > 0 && (i == sharedItems || bytes > sharedBytes || len(nodes) > sharedNodes) {
			return i
		}
	}
	return len(comps)
}

// FitNode returns how many of the first completions one call of CompleteNode takes: at least one.
func FitNode(comps []Completion) int {
	bytes := 0
	for i := range comps {
		bytes += comps[i].size()
		if i > 0 && (i == batchItems || bytes > batchBytes) {
			return i
		}
	}
	return len(comps)
}

// CompletionResult says what CompleteNode did with a completion. Err is as returned by Complete.
type CompletionResult struct {
	Outcome CompletionOutcome
	Err     error
}

// CompleteNode ends attempts of one node and epoch in one call. It takes at most as many
// completions as FitNode allows, and returns the results in their order. A completion that cannot
// be sent does not affect the others.
func (c *Cell) CompleteNode(ctx context.Context, comps []Completion) []CompletionResult {
	results := make([]CompletionResult, len(comps))
	sent, valid := make([]Completion, 0, len(comps)), make([]int, 0, len(comps))
	for i := range comps {
		if results[i].Err = comps[i].validate(); results[i].Err == nil {
			sent, valid = append(sent, comps[i]), append(valid, i)
		}
	}
	if len(sent) == 0 {
		return results
	}
	outcomes, err := c.complete(ctx, sent)
	for n, i := range valid {
		if results[i].Err = err; err == nil {
			results[i].Outcome = outcomes[n]
		}
	}
	return results
}

// CompleteNodes ends attempts of several nodes in one call, if they need nothing else. It takes
// plain completions, at most as many as FitNodes allows, and returns the outcomes in their
// order. An error is never an answer of Redis: after it the call may have been carried out.
func (c *Cell) CompleteNodes(ctx context.Context, comps []Completion) (out []SharedOutcome, err error) {
	defer wrap(&err, "complete %d jobs of several nodes", len(comps))
	l := c.layout
	nodes, items := groupByNode(comps)
	keys, jobs := []string{l.Revisions(), l.Version(), l.Finished()}, make([]string, 0, len(comps))
	args := []string{l.NodeEvents(), strconv.Itoa(len(nodes))}
	for _, node := range nodes {
		of := items[node]
		keys = append(keys, l.Node(node), l.Slots(node))
		args = append(args, node, comps[of[0]].Epoch, strconv.Itoa(len(of)))
		for _, i := range of {
			comp, failure := &comps[i], ""
			if comp.Error != nil {
				failure = mustJSON(comp.Error)
			}
			jobs = append(jobs, l.Job(comp.Attempt.Job))
			args = append(args, comp.Attempt.Job, strconv.Itoa(comp.Attempt.N), string(comp.State),
				rueidis.BinaryString(comp.Result), failure)
		}
	}
	out = make([]SharedOutcome, len(comps))
	if len(nodes) == 0 {
		return out, nil
	}
	codes, err := c.runner.Call(ctx, c.scripts["complete_nodes"], append(keys, jobs...), args).AsIntSlice()
	if answer := (*rueidis.RedisError)(nil); errors.As(err, &answer) {
		// With these errors Redis refuses a script before it runs. So the agents need not send
		// heartbeats, which they would otherwise do at each end of an attempt while a hash slot
		// migrates.
		if answer.IsTryAgain() || answer.IsClusterDown() || answer.IsLoading() {
			return out, nil
		}
		for i := range out {
			out[i] = SharedUnknown
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if len(codes) != len(jobs) {
		return nil, fmt.Errorf("%d answers, expected %d", len(codes), len(jobs))
	}
	for _, node := range nodes {
		for _, i := range items[node] {
			if codes[0] == 1 {
				out[i] = SharedCompleted
			}
			codes = codes[1:]
		}
	}
	return out, nil
}

// groupByNode returns the completions of each node. Nodes are in the order of their first
// completion. It leaves out completions that cannot be sent, and completions of another epoch than
// the node's first one.
func groupByNode(comps []Completion) (nodes []string, items map[string][]int) {
	items = make(map[string][]int, len(comps))
	for i := range comps {
		if comps[i].validate() != nil {
			continue
		}
		node := comps[i].Node
		of := items[node]
		if of == nil {
			nodes = append(nodes, node)
		}
		if of == nil || comps[of[0]].Epoch == comps[i].Epoch {
			items[node] = append(of, i)
		}
	}
	return nodes, items
}
