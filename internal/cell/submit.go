package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// Submit places one job; concurrent callers share a call. Errors: *freeslot.Error
// for a submission that cannot be sent, ErrNotSent and ErrStopped: nothing was
// changed; any other says that the job may have been placed: repeat with the same
// JobID to learn.
func (c *Cell) Submit(ctx context.Context, s Submission) (Placement, error) {
	return c.queueSubmission(ctx, s).wait(c.stopped)
}

// SubmitResult is one outcome of SubmitAll.
type SubmitResult struct {
	Placement Placement
	Err       error
}

// SubmitAll is Submit for several jobs at once. The results are in the order of subs,
// which need not be the order in which the jobs are placed.
func (c *Cell) SubmitAll(ctx context.Context, subs []Submission) []SubmitResult {
	items := make([]*item[encodedSubmission, Placement], len(subs))
	for i, s := range subs {
		items[i] = c.queueSubmission(ctx, s)
	}
	out := make([]SubmitResult, len(subs))
	for i, it := range items {
		out[i].Placement, out[i].Err = it.wait(c.stopped)
	}
	return out
}

func (c *Cell) queueSubmission(ctx context.Context, s Submission) *item[encodedSubmission, Placement] {
	e, err := encodeSubmission(s)
	if err == nil && !c.started.Load() {
		err = ErrStopped
	}
	if err != nil {
		return failed[encodedSubmission, Placement](err)
	}
	return c.submits.submit(ctx, c.stopping, e)
}

// encodedSubmission is a submission that can be sent: one that cannot must be told
// so alone, before it shares a call with others.
type encodedSubmission struct {
	Submission
	spec []byte
}

func encodeSubmission(s Submission) (encodedSubmission, error) {
	if err := s.validate(); err != nil {
		return encodedSubmission{}, err
	}
	spec, err := json.Marshal(s.Job)
	if err != nil {
		return encodedSubmission{}, invalid("job", "cannot be encoded: %v", err)
	}
	return encodedSubmission{Submission: s, spec: spec}, nil
}

func submissionSize(s encodedSubmission) int { return len(s.spec) + controlOverhead }

// submit is one script call for a batch.
func (c *Cell) submit(ctx context.Context, subs []encodedSubmission) ([]Placement, error) {
	call := submitCall{layout: c.layout, index: make(map[string]int)}
	for i := range subs {
		call.add(&subs[i])
	}
	keys, args := call.encode(c.layout, c.cfg)
	reply, err := c.exec(ctx, "submit", c.scripts.submit, keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("submit %d jobs: %w", len(subs), err)
	}
	if len(reply) != len(subs) {
		return nil, fmt.Errorf("submit %d jobs: %d answers", len(subs), len(reply))
	}
	out := make([]Placement, len(subs))
	for i := range reply {
		if out[i], err = call.decode(reply[i]); err != nil {
			return nil, fmt.Errorf("submit job %s: %w", subs[i].JobID, err)
		}
	}
	return out, nil
}

// submitCall collects the arguments of one call: each node once, however many
// jobs name it.
type submitCall struct {
	layout Layout
	nodes  []string
	index  map[string]int // node -> its index from 1
	jobs   []string
	items  []string
}

func (sc *submitCall) add(s *encodedSubmission) {
	sc.jobs = append(sc.jobs, sc.layout.Job(s.JobID))
	sc.items = append(sc.items, s.JobID, s.Tenant, s.Job.Service, strconv.Itoa(s.Job.SlotCount()), s.ReplyTo,
		rueidis.BinaryString(s.spec), strconv.Itoa(len(s.Candidates)))
	for _, node := range s.Candidates {
		i, ok := sc.index[node]
		if !ok {
			sc.nodes = append(sc.nodes, node)
			i = len(sc.nodes)
			sc.index[node] = i
		}
		sc.items = append(sc.items, strconv.Itoa(i))
	}
}

func (sc *submitCall) encode(l Layout, cfg Config) (keys, args []string) {
	keys = make([]string, 0, 3+3*len(sc.nodes)+len(sc.jobs))
	keys = append(keys, l.Revisions(), l.Version(), l.Heartbeats())
	for _, node := range sc.nodes {
		keys = append(keys, l.Node(node), l.Slots(node), l.Dispatch(node))
	}
	keys = append(keys, sc.jobs...)
	args = make([]string, 0, 6+len(sc.nodes)+len(sc.items))
	args = append(args, l.NodeEvents(), millis(cfg.HeartbeatLimit), strconv.Itoa(len(sc.nodes)),
		strconv.Itoa(len(sc.jobs)), strconv.Itoa(inlineSpec), millis(cfg.Retention))
	args = append(args, sc.nodes...)
	return keys, append(args, sc.items...)
}

func (sc *submitCall) decode(m rueidis.RedisMessage) (Placement, error) {
	reply, err := m.ToArray()
	if err != nil {
		return Placement{}, err
	}
	code, err := intAt(reply, 0)
	if err != nil {
		return Placement{}, err
	}
	switch code {
	case 0:
		refusals, err := sc.decodeRefusals(reply, 1)
		return Placement{Refusals: refusals}, err
	case 1:
		node, err := sc.node(reply, 1)
		if err != nil {
			return Placement{}, err
		}
		now, used, err := twoInts(reply, 2)
		if err != nil {
			return Placement{}, err
		}
		refusals, err := sc.decodeRefusals(reply, 4)
		return Placement{Assigned: true, Node: node, Attempt: 1, AssignedAtMS: now, Used: int(used), Refusals: refusals}, err
	case 2:
		if len(reply) < 4 {
			return Placement{}, fmt.Errorf("reply has %d values, expected 4", len(reply))
		}
		node, err := reply[1].ToString()
		if err != nil {
			return Placement{}, err
		}
		attempt, assigned, err := twoInts(reply, 2)
		return Placement{Assigned: true, Repeated: true, Node: node, Attempt: int(attempt), AssignedAtMS: assigned, Used: -1}, err
	default:
		return Placement{}, fmt.Errorf("unknown code %d", code)
	}
}

var refusalReasons = map[string]RefusalReason{
	"f": RefusedFull, "g": RefusedGone, "d": RefusedDraining, "s": RefusedSilent,
}

// decodeRefusals reads those that begin at index from.
func (sc *submitCall) decodeRefusals(reply []rueidis.RedisMessage, from int) (refusals []Refusal, err error) {
	for i := from; i < len(reply); i += 4 {
		node, err := sc.node(reply, i)
		if err != nil {
			return nil, err
		}
		letter, err := reply[i+1].ToString()
		if err != nil {
			return nil, err
		}
		reason, ok := refusalReasons[letter]
		if !ok {
			return nil, fmt.Errorf("unknown refusal %q", letter)
		}
		used, limit, err := twoInts(reply, i+2)
		if err != nil {
			return nil, err
		}
		refusals = append(refusals, Refusal{Node: node, Reason: reason, Used: int(used), MaxConcurrency: int(limit)})
	}
	return refusals, nil
}

func (sc *submitCall) node(reply []rueidis.RedisMessage, i int) (string, error) {
	index, err := intAt(reply, i)
	if err != nil {
		return "", err
	}
	if index < 1 || int(index) > len(sc.nodes) {
		return "", fmt.Errorf("node %d of %d", index, len(sc.nodes))
	}
	return sc.nodes[index-1], nil
}

func twoInts(reply []rueidis.RedisMessage, i int) (a, b int64, err error) {
	if a, err = intAt(reply, i); err != nil {
		return 0, 0, err
	}
	b, err = intAt(reply, i+1)
	return a, b, err
}
