package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

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

// complete makes one script call for a batch of one node and epoch.
func (c *Cell) complete(ctx context.Context, comps []Completion) (out []CompletionOutcome, err error) {
	l, node := c.layout, comps[0].Node
	defer wrap(&err, "complete %d jobs of node %s", len(comps), node)
	keys := append(make([]string, 0, 6+len(comps)), l.Revisions(), l.Version(), l.Finished(), l.Node(node), l.Slots(node),
		l.Dispatch(node))
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
