package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// Completion is the end of one attempt.
type Completion struct {
	Node    string
	Epoch   Epoch
	Attempt Attempt
	// State is StateSucceeded, StateFailed or StateCancelled.
	State freeslot.State
	// Result is any JSON value, for StateSucceeded; nil means null. It must not be changed any
	// more: a call that the caller gave up can still be sending it.
	Result json.RawMessage
	// Error is set for StateFailed.
	Error *freeslot.JobError
	// For StateFailed, Next says whether another attempt follows, and RetryDelay after how long.
	// The job ends all the same if it is being cancelled or has no attempts or time left.
	Next       Next
	RetryDelay time.Duration
	// Begun gets the jobs that begin on the node with this call, if any, before Complete returns.
	// It must not block. If the answer is lost, so are these jobs; the next heartbeat names them,
	// as it does for missed entries of the dispatch stream. If Begun is nil, the dispatch stream
	// delivers the jobs. If several items share a call, the first one with a Begun gets all jobs.
	Begun func([]Dispatch)
}

// Next says what follows a failed attempt.
type Next uint8

const (
	// Never ends the job as failed.
	Never Next = iota
	// Retry counts the failure. If it is the last one that the job may have, the job is dead.
	Retry
	// HandBack is for a node that stops. It does not count as a failure of the job.
	HandBack
)

// CompletionOutcome says what a Completion did.
type CompletionOutcome string

// The outcomes of a completion.
const (
	// Completed: the outcome is stored, the slot is free, and the result was sent.
	Completed CompletionOutcome = "completed"
	// CompletedBefore: this attempt had ended already, by an earlier call or because another agent
	// took its node over. Nothing changed.
	CompletedBefore CompletionOutcome = "completed_before"
	// CompletedStale: the node does not own this attempt. Nothing changed.
	CompletedStale CompletionOutcome = "stale"
)

// completionOutcomes are indexed by the codes of complete.lua.
var completionOutcomes = []CompletionOutcome{CompletedStale, Completed, CompletedBefore}

// Complete ends one attempt. Concurrent callers of one node and epoch share a call. It can be
// repeated until it returns an outcome. Errors: *freeslot.Error for a completion that cannot be
// sent, ErrNotSent and ErrStopped mean that nothing was changed. After any other error it may have
// been applied.
func (c *Cell) Complete(ctx context.Context, comp Completion) (CompletionOutcome, error) {
	if err := comp.validate(); err != nil {
		return "", err
	}
	return c.completions.DoOne(ctx, comp)
}

func completionSize(comp Completion) int { return len(comp.Result) + controlOverhead }

// complete makes one script call for a batch of one node and epoch.
func (c *Cell) complete(ctx context.Context, comps []Completion) (out []CompletionOutcome, err error) {
	l, node := c.layout, comps[0].Node
	defer wrap(&err, "complete %d jobs of node %s", len(comps), node)
	keys := append(make([]string, 0, 6+len(comps)), l.Revisions(), l.Version(), l.Finished(), l.Node(node), l.Slots(node), l.Dispatch(node))
	var begun func([]Dispatch)
	items := make([]string, 0, 6*len(comps))
	for i := range comps {
		comp, failure := &comps[i], ""
		if comp.Error != nil {
			failure = mustJSON(comp.Error)
		}
		if begun == nil {
			begun = comp.Begun
		}
		keys = append(keys, l.Job(comp.Attempt.Job))
		items = append(items, comp.Attempt.Job, strconv.Itoa(comp.Attempt.N), string(comp.State),
			rueidis.BinaryString(comp.Result), failure, comp.next())
	}
	answers := ""
	if begun != nil {
		answers = "1"
		keys[5] = l.Slots(node) // a stream may not exist, and during a migration Redis refuses such a key
	}
	args := slices.Concat([]string{node, comps[0].Epoch, l.NodeEvents(), answers}, items)
	reply, err := c.runner.Call(ctx, c.scripts["complete"], keys, args).ToArray()
	if err != nil {
		return nil, err
	}
	if len(reply) < 1+len(comps) {
		return nil, fmt.Errorf("%d answers", len(reply)-1)
	}
	if jobs := reply[1+len(comps):]; begun != nil && len(jobs) > 0 {
		begun(c.begun(node, jobs))
	}
	out = make([]CompletionOutcome, len(comps))
	for i := range comps {
		code, err := reply[1+i].AsInt64()
		if err == nil && (code < 0 || int(code) >= len(completionOutcomes)) {
			err = fmt.Errorf("unknown code %d", code)
		}
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", comps[i].Attempt.Job, err)
		}
		out[i] = completionOutcomes[code]
	}
	return out, nil
}

// begun returns the jobs that began with a call. It leaves out jobs that cannot be read: heartbeats
// name them.
func (c *Cell) begun(node string, fields []rueidis.RedisMessage) []Dispatch {
	out := make([]Dispatch, 0, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		head, err := fields[i].ToString()
		spec, specErr := fields[i+1].ToString()
		var d Dispatch
		if err = errors.Join(err, specErr); err == nil {
			d, err = decodeDelivery(head, spec)
		}
		if err != nil {
			c.log.Warn("dispatch.unreadable", zap.String("node", node), zap.Error(err))
			continue
		}
		out = append(out, d)
	}
	return out
}

// next returns the argument of complete.lua for what follows the attempt.
func (c *Completion) next() string {
	switch c.Next {
	case Retry:
		return strconv.FormatInt(max(c.RetryDelay.Milliseconds(), 0), 10)
	case HandBack:
		return "h"
	default:
		return ""
	}
}
