package cell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 1000

// EnqueueAll has jobs wait in the queues of their classes, where one that is first may get
// a slot of its candidates at once; concurrent callers share a call. The results are in the
// order of subs. Errors: as Submit, and *freeslot.Error (overloaded) when the queue of its
// class is full.
func (c *Cell) EnqueueAll(ctx context.Context, subs []Submission) []SubmitResult {
	out := c.doAll(ctx, c.enqueues, subs, 0)
	for i := range out {
		if out[i].Placement.Crowded {
			out[i].Err = subs[i].crowded()
		} else if p := out[i].Placement; out[i].Err == nil && !p.Assigned && !p.Waiting && p.Owner == "" {
			out[i].Err = c.lineFull()
		}
	}
	return out
}

func (c *Cell) lineFull() *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
		Message: fmt.Sprintf("as many jobs wait as may: %d for the same nodes, 1024 kinds of jobs, or %d for later", c.cfg.WaitingLimit, 10*c.cfg.WaitingLimit),
	}
}

// enqueue is one script call for a batch.
func (c *Cell) enqueue(ctx context.Context, subs []encodedSubmission) ([]Placement, error) {
	keys, args := c.enqueueCall(subs)
	reply, err := c.runner.CallReplicated(ctx, c.scripts["enqueue"], keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("enqueue %d jobs: %w", len(subs), err)
	}
	if len(reply) != 1+len(subs) {
		return nil, fmt.Errorf("enqueue %d jobs: %d values, expected %d", len(subs), len(reply), 1+len(subs))
	}
	now, err := intAt(reply, 0)
	if err != nil {
		return nil, fmt.Errorf("enqueue %d jobs: %w", len(subs), err)
	}
	out := make([]Placement, len(subs))
	for i := range out {
		answer, err := reply[i+1].ToArray()
		if err == nil {
			err = decodeEnqueued(&out[i], now, answer)
		}
		if err != nil {
			return nil, fmt.Errorf("enqueue job %s: %w", subs[i].JobID, err)
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
		var named []string
		for _, node := range s.Candidates {
			if index[node] == 0 {
				nodes = append(nodes, node)
				index[node] = len(nodes)
				keys = append(keys, l.Node(node), l.Slots(node), l.Dispatch(node), l.Load(node))
			}
			named = append(named, strconv.Itoa(index[node]))
		}
		idem, digest := "", ""
		if name := s.keyName(l); name != "" {
			idems = append(idems, name)
			idem, digest = strconv.Itoa(len(idems)), specDigest(s.Job)
		}
		items = append(items, s.JobID, s.Tenant, strconv.Itoa(s.Job.SlotCount()), s.ReplyTo, s.timeout(),
			s.Class.ID, strconv.Itoa(s.Job.Priority), strconv.Itoa(s.Job.AttemptLimit()), s.Class.Definition,
			strconv.Itoa(min(max(s.Weight, 1), MaxWeight)), rueidis.BinaryString(s.spec),
			begin(s.Job), idem, digest, gatesArg(s.Gates))
		items = append(append(items, named...), "")
	}
	for i := range subs {
		keys = append(keys, l.Job(subs[i].JobID))
	}
	keys = append(keys, idems...)
	args = []string{
		l.NodeEvents(), millis(c.cfg.HeartbeatLimit), millis(c.cfg.Retention), strconv.Itoa(c.cfg.WaitingLimit), millis(c.cfg.KeyRetention),
		strconv.Itoa(len(nodes)), strconv.Itoa(len(subs)),
	}
	return keys, slices.Concat(args, nodes, items)
}

// begin is when a job is for, as the script gets it.
func begin(job *freeslot.Job) string {
	if job.RunAtMS == 0 {
		return ""
	}
	return strconv.FormatInt(job.RunAtMS, 10)
}

// specDigest tells the jobs of one idempotency key apart. The trace is of the submission.
func specDigest(job *freeslot.Job) string {
	untraced := *job
	untraced.TraceParent = ""
	sum := sha256.Sum256([]byte(mustJSON(&untraced)))
	return hex.EncodeToString(sum[:16])
}

// decodeEnqueued reads the answer for one item.
func decodeEnqueued(p *Placement, now int64, answer []rueidis.RedisMessage) error {
	code, err := intAt(answer, 0)
	if err != nil {
		return err
	}
	switch {
	case (code == 1 || code == 2) && len(answer) == 4:
		node, err := answer[1].ToString()
		if err != nil {
			return err
		}
		first, second, err := twoInts(answer, 2)
		*p = Placement{Assigned: true, Node: node, Used: int(first), Attempt: int(second), AssignedAtMS: now}
		if code == 2 {
			*p = Placement{Assigned: true, Repeated: true, Node: node, Attempt: int(first), AssignedAtMS: second, Used: -1}
		}
		return err
	case code == 4:
		position, err := intAt(answer, 1)
		*p = Placement{Waiting: true, Position: int(position), SubmittedAtMS: now, Used: -1}
		return err
	case (code == 6 || code == 7) && len(answer) == 2:
		p.Owner, err = answer[1].ToString()
		p.Differs = code == 7
		return err
	case code == 8:
		p.Crowded = true
		return nil
	case code == 5:
		return nil // neither assigned nor waiting
	default:
		return fmt.Errorf("unknown answer %d of %d values", code, len(answer))
	}
}

// Take gives the node's free slots to jobs that wait in these classes, the best first, and
// remembers under the version of the pools' configuration that the node serves them:
// completions on it then hand their slots over by themselves. At most MaxTake classes are
// heeded. Errors: *freeslot.Error (invalid_argument), else what Redis said.
func (c *Cell) Take(ctx context.Context, node string, classes []string, config uint64) (Taken, error) {
	return c.TakeAs(ctx, node, "", classes, config)
}

// TakeAs is Take for a node of this epoch; one of another epoch gets nothing. "" is any.
func (c *Cell) TakeAs(ctx context.Context, node string, epoch Epoch, classes []string, config uint64) (Taken, error) {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return Taken{}, err
	}
	l := c.layout
	keys := []string{
		l.Revisions(), l.Version(), l.Waiting(), l.WaitingVersion(),
		l.Node(node), l.Slots(node), l.Dispatch(node), l.Load(node), l.Serves(node), l.ServesVersion(),
	}
	args := append([]string{l.NodeEvents(), millis(c.cfg.HeartbeatLimit), node, epoch, strconv.FormatUint(config, 10)},
		classes[:min(len(classes), MaxTake)]...)
	reply, err := c.runner.Call(ctx, c.scripts["take"], keys, args).ToArray()
	if err != nil {
		return Taken{}, fmt.Errorf("take for node %s: %w", node, err)
	}
	return decodeTaken(reply)
}

// MaxTake is the most classes that one Take heeds.
const MaxTake = 32

func decodeTaken(reply []rueidis.RedisMessage) (t Taken, err error) {
	if len(reply) != 4 {
		return t, fmt.Errorf("take: %d values, expected 4", len(reply))
	}
	begun, err := intAt(reply, 0)
	if err != nil {
		return t, fmt.Errorf("take: %w", err)
	}
	used, limit, err := twoInts(reply, 1)
	if err != nil {
		return t, fmt.Errorf("take: %w", err)
	}
	why, err := reply[3].ToString()
	if err != nil {
		return t, fmt.Errorf("take: %w", err)
	}
	return Taken{Jobs: int(begun), Used: int(used), MaxConcurrency: int(limit), Refusal: refusalReasons[why], Superseded: why == "e"}, nil
}

// Waiting reads of which classes jobs wait; known is the revision that the caller has, 0
// for none. Errors: what Redis said.
func (c *Cell) Waiting(ctx context.Context, known uint64) (Waiting, error) {
	l := c.layout
	revision, err := c.runner.Do(ctx, "waiting", c.client.B().Get().Key(l.WaitingVersion()).Build()).AsUint64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return Waiting{}, fmt.Errorf("read waiting classes: %w", err)
	}
	if revision == known && known != 0 { // 0, too, where the counter was lost
		return Waiting{Revision: revision, Same: true}, nil
	}
	all, err := c.runner.Do(ctx, "waiting", c.client.B().Hgetall().Key(l.Waiting()).Build()).AsStrMap()
	if err != nil {
		return Waiting{}, fmt.Errorf("read waiting classes: %w", err)
	}
	w := Waiting{Revision: revision, Classes: make([]Class, 0, len(all))}
	for id, definition := range all {
		w.Classes = append(w.Classes, Class{ID: id, Definition: definition})
	}
	return w, nil
}
