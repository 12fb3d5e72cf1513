package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// Complete ends one attempt; concurrent callers of one node and epoch share a
// call. It can be repeated until it brings an outcome. Errors: *freeslot.Error for
// a completion that cannot be sent, ErrNotSent and ErrStopped: nothing was changed;
// any other says that it may have been applied.
func (c *Cell) Complete(ctx context.Context, comp Completion) (CompletionOutcome, error) {
	if err := comp.validate(); err != nil {
		return "", err
	}
	out := c.completions.Do(ctx, []Completion{comp})[0]
	return out.Out, out.Err
}

func completionSize(comp Completion) int { return len(comp.Result) + controlOverhead }

// complete is one script call for a batch, which is of one node and epoch.
func (c *Cell) complete(ctx context.Context, comps []Completion) ([]CompletionOutcome, error) {
	l, node := c.layout, comps[0].Node
	keys := make([]string, 0, 6+len(comps))
	keys = append(keys, l.Revisions(), l.Version(), l.Finished(), l.Node(node), l.Slots(node), l.Dispatch(node))
	args := make([]string, 0, 4+6*len(comps))
	begun, told := begunBy(comps), ""
	if begun != nil {
		told = "1"
	}
	args = append(args, node, comps[0].Epoch, l.NodeEvents(), told)
	for _, comp := range comps {
		failure := ""
		if comp.Error != nil {
			failure = mustJSON(comp.Error)
		}
		keys = append(keys, l.Job(comp.Attempt.Job))
		args = append(args, comp.Attempt.Job, strconv.Itoa(comp.Attempt.N), string(comp.State),
			rueidis.BinaryString(comp.Result), failure, comp.again())
	}
	reply, err := c.runner.Call(ctx, c.scripts["complete"], keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("complete %d jobs of node %s: %w", len(comps), node, err)
	}
	behind := len(comps) + 1 // where the jobs that began are
	if len(reply) < behind {
		return nil, fmt.Errorf("complete %d jobs of node %s: %d answers", len(comps), node, len(reply)-1)
	}
	if begun != nil && len(reply) > behind {
		begun(c.begun(node, reply[behind:]))
	}
	out := make([]CompletionOutcome, len(comps))
	for i := range comps {
		if out[i], err = completionOutcome(reply, i+1); err != nil {
			return nil, fmt.Errorf("complete job %s: %w", comps[i].Attempt.Job, err)
		}
	}
	return out, nil
}

// begunBy is who gets the jobs that begin with a call; nil for the dispatch stream.
func begunBy(comps []Completion) func([]Dispatch) {
	for i := range comps {
		if comps[i].Begun != nil {
			return comps[i].Begun
		}
	}
	return nil
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

// again is how complete.lua gets what is to come.
func (c *Completion) again() string {
	switch c.Again {
	case Retry:
		return strconv.FormatInt(max(c.RetryDelay.Milliseconds(), 0), 10)
	case HandBack:
		return "h"
	default:
		return ""
	}
}

func completionOutcome(reply []rueidis.RedisMessage, i int) (CompletionOutcome, error) {
	code, err := intAt(reply, i)
	if err != nil {
		return "", err
	}
	switch code {
	case 0:
		return CompletedStale, nil
	case 1:
		return Completed, nil
	case 2:
		return CompletedBefore, nil
	default:
		return "", fmt.Errorf("unknown code %d", code)
	}
}
