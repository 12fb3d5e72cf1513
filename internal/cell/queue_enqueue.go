package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 1000

// EnqueueAll puts jobs into the queues of their classes. A job that is first there may get a slot
// of its candidates at once. Concurrent callers share a call. The results are in the order of subs.
// Errors: as Submit, and *freeslot.Error (overloaded) if the queue of the job's class is full.
func (c *Cell) EnqueueAll(ctx context.Context, subs []Submission) []SubmitResult {
	out := c.doAll(ctx, c.enqueues, subs, 0)
	for i := range out {
		if out[i].Placement.Crowded {
			out[i].Err = subs[i].crowded()
		} else if share := out[i].Placement.Share; share != NoShare {
			out[i].Err = subs[i].overShare(share)
		} else if p := out[i].Placement; out[i].Err == nil && !p.Assigned && !p.Waiting && p.Owner == "" {
			out[i].Err = c.queueFull()
		}
	}
	return out
}

func (c *Cell) queueFull() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: fmt.Sprintf("as many jobs wait as may: %d for the same nodes, 1024 kinds of jobs, or %d for later",
			c.cfg.WaitingLimit, 10*c.cfg.WaitingLimit),
	}
}

// enqueue makes one script call for a batch.
func (c *Cell) enqueue(ctx context.Context, subs []encodedSubmission) (out []Placement, err error) {
	defer wrap(&err, "enqueue %d jobs", len(subs))
	keys, args := c.enqueueCall(subs)
	r := script.ReadReply(c.runner.CallReplicated(ctx, c.scripts["enqueue"], keys, args))
	now := r.Number()
	if r.Err == nil && len(r.Values) != len(subs) {
		r.Err = fmt.Errorf("%d answers, expected %d", len(r.Values), len(subs))
	}
	if r.Err != nil {
		return nil, r.Err
	}
	out = make([]Placement, len(subs))
	for i := range out {
		if out[i], err = decodeEnqueued(script.ReadReply(&r.Values[i]), now); err != nil {
			return nil, fmt.Errorf("job %s: %w", subs[i].JobID, err)
		}
	}
	return out, nil
}

func (c *Cell) enqueueCall(subs []encodedSubmission) (keys, args []string) {
	l := c.layout
	keys = []string{l.Revisions(), l.Version(), l.Due(), l.Waiting(), l.WaitingVersion()}
	var nodes, items, idems []string
	index := make(map[string]int)
	for i := range subs {
		s := &subs[i]
		idem, digest := "", ""
		if name := s.keyName(l); name != "" {
			idems = append(idems, name)
			idem, digest = strconv.Itoa(len(idems)), specDigest(s.Job)
			if s.Once != "" {
				idem = "-" + idem
			}
		}
		items = append(items, s.JobID, s.Tenant, strconv.Itoa(s.Job.SlotCount()), s.ReplyTo, orNone(s.Job.TimeoutMS),
			s.Class.ID, strconv.Itoa(s.Job.Priority), strconv.Itoa(s.Job.AttemptLimit()), s.Class.Definition,
			strconv.Itoa(min(max(s.Weight, 1), MaxWeight)), rueidis.BinaryString(s.spec),
			orNone(s.Job.RunAtMS), idem, digest, limitsArg(s.Limits), orNone(int64(s.MaxKinds)),
			s.Origin.String(), orNone(s.NodeWait.Milliseconds()))
		for _, node := range s.Candidates {
			if index[node] == 0 {
				nodes = append(nodes, node)
				index[node] = len(nodes)
				keys = append(keys, l.Node(node), l.Slots(node), l.Dispatch(node), l.Load(node))
			}
			items = append(items, strconv.Itoa(index[node]))
		}
		items = append(items, "")
	}
	for i := range subs {
		keys = append(keys, l.Job(subs[i].JobID))
	}
	args = []string{
		l.NodeEvents(), millis(c.cfg.HeartbeatLimit), millis(c.cfg.Retention), strconv.Itoa(c.cfg.WaitingLimit),
		millis(c.cfg.KeyRetention),
		strconv.Itoa(len(nodes)), strconv.Itoa(len(subs)),
	}
	return append(keys, idems...), slices.Concat(args, nodes, items)
}

// decodeEnqueued reads the answer for one item.
func decodeEnqueued(r script.Reply, now int64) (p Placement, err error) {
	switch code := r.Number(); code {
	case 1:
		p = Placement{
			Assigned: true, AssignedAtMS: now, Node: r.Text(), Used: int(r.Number()), Attempt: int(r.Number()),
		}
	case 2:
		p = repeated(&r)
	case 4:
		p = Placement{Waiting: true, SubmittedAtMS: now, Used: -1, Position: int(r.Number())}
	case 5: // neither assigned nor waiting: the queue is full
	case 6, 7:
		p = Placement{Differs: code == 7, Owner: r.Text()}
	case 8:
		p.Crowded = true
	case 9:
		p.Share = ShareKinds
	case 10:
		p.Share = ShareLater
	default:
		if r.Err == nil {
			r.Err = fmt.Errorf("unknown code %d", code)
		}
	}
	return p, r.Err
}
