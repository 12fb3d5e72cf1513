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
	// Result is any JSON value, for StateSucceeded; nil is null. It must not be
	// changed any more: a call that was given up can still be sending it.
	Result json.RawMessage
	// Error is set for StateFailed.
	Error *freeslot.JobError
	// Next is, for StateFailed, whether there is to be another attempt, and
	// RetryDelay after how long. A job that is being cancelled or that has no attempts
	// or time left ends all the same.
	Next       Next
	RetryDelay time.Duration
	// Begun gets the jobs that begin on the node with this call, if there are any, before
	// Complete returns. It must not block. An answer that is lost takes them with it: like
	// entries of the dispatch stream that are missed, the next heartbeat names them. nil has them
	// delivered by the dispatch stream. Of items that share a call the first that has one gets them all.
	Begun func([]Dispatch)
}

// Next is what follows a failed attempt.
type Next uint8

const (
	// Never ends the job as failed.
	Never Next = iota
	// Retry counts the failure; the job is dead with the last one that it may have.
	Retry
	// HandBack is for a node that stops; that is no failure of the job.
	HandBack
)

// CompletionOutcome is what a Completion did.
type CompletionOutcome string

// The outcomes of a completion.
const (
	// Completed: stored, slot freed, result sent.
	Completed CompletionOutcome = "completed"
	// CompletedBefore: this attempt had ended before, by an earlier call or because
	// its node was taken over; nothing changed.
	CompletedBefore CompletionOutcome = "completed_before"
	// CompletedStale: the node does not own this attempt; nothing changed.
	CompletedStale CompletionOutcome = "stale"
)

// completionOutcomes are by the codes of complete.lua.
var completionOutcomes = []CompletionOutcome{CompletedStale, Completed, CompletedBefore}

// Complete ends one attempt; concurrent callers of one node and epoch share a
// call. It can be repeated until it brings an outcome. Errors: *freeslot.Error for
// a completion that cannot be sent, ErrNotSent and ErrStopped: nothing was changed;
// after any other it may have been applied.
func (c *Cell) Complete(ctx context.Context, comp Completion) (CompletionOutcome, error) {
	if err := comp.validate(); err != nil {
		return "", err
	}
	return c.completions.DoOne(ctx, comp)
}

func completionSize(comp Completion) int { return len(comp.Result) + controlOverhead }

// complete is one script call for a batch, which is of one node and epoch.
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
		keys[5] = l.Slots(node) // the stream may be nowhere, and while a hash slot migrates Redis refuses such calls
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

// begun reads the jobs that began with a call. One that cannot be read is passed over: heartbeats name it.
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

// next is what complete.lua gets.
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
