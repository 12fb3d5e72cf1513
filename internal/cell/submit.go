package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/script"
)

// Submit places one job; concurrent callers share a call. Errors: *freeslot.Error
// for a submission that cannot be sent, ErrNotSent and ErrStopped: nothing was
// changed; any other says that the job may have been placed: repeat with the same
// JobID to learn.
func (c *Cell) Submit(ctx context.Context, s Submission) (Placement, error) {
	r := c.SubmitAll(ctx, []Submission{s})[0]
	return r.Placement, r.Err
}

// SubmitResult is one outcome of SubmitAll.
type SubmitResult struct {
	Placement Placement
	Err       error
}

// SubmitAll is Submit for several jobs at once. The results are in the order of subs,
// which need not be the order in which the jobs are placed.
func (c *Cell) SubmitAll(ctx context.Context, subs []Submission) []SubmitResult {
	return c.doAll(ctx, c.submits, subs, 1)
}

// doAll is a call of b for submissions with at least so many candidates. One that cannot be sent shares no call.
func (c *Cell) doAll(ctx context.Context, b *script.Batch[encodedSubmission, Placement], subs []Submission, candidates int) []SubmitResult {
	out := make([]SubmitResult, len(subs))
	sent, at := make([]encodedSubmission, 0, len(subs)), make([]int, 0, len(subs))
	for i := range subs {
		e, err := encodeSubmission(subs[i], candidates)
		if err != nil {
			out[i].Err = err
			continue
		}
		sent, at = append(sent, e), append(at, i)
	}
	for i, o := range b.Do(ctx, sent) {
		out[at[i]] = SubmitResult{Placement: o.Out, Err: o.Err}
	}
	return out
}

// encodedSubmission is a submission that can be sent: one that cannot must be told
// so alone, before it shares a call with others.
type encodedSubmission struct {
	Submission
	spec []byte
}

func encodeSubmission(s Submission, candidates int) (encodedSubmission, error) {
	if err := s.validateCandidates(candidates); err != nil {
		return encodedSubmission{}, err
	}
	if err := s.validate(); err != nil {
		return encodedSubmission{}, err
	}
	spec, err := json.Marshal(s.Job)
	if err != nil {
		return encodedSubmission{}, freeslot.Invalid("job", "cannot be encoded: %v", err)
	}
	if s.Class.ID == "" {
		s.Class = ClassOf(s.Job)
	}
	return encodedSubmission{Submission: s, spec: spec}, nil
}

// ClassOf is the class of a job that was not chosen for by its class.
func ClassOf(job *freeslot.Job) Class {
	return Class{
		ID:         class.ID(job.Service, &job.Requirement),
		Definition: mustJSON(ClassDefinition{Service: job.Service, Requirement: job.Requirement}),
	}
}

// timeout is how scripts get it: ” is none.
func (s *encodedSubmission) timeout() string {
	if s.Job.TimeoutMS == 0 {
		return ""
	}
	return strconv.FormatInt(s.Job.TimeoutMS, 10)
}

func submissionSize(s encodedSubmission) int { return len(s.spec) + controlOverhead }

// submit is one script call for a batch.
func (c *Cell) submit(ctx context.Context, subs []encodedSubmission) ([]Placement, error) {
	call := newSubmitCall(c.layout)
	for i := range subs {
		call.add(&subs[i])
	}
	keys, args := call.encode(c.cfg)
	reply, err := c.runner.CallReplicated(ctx, c.scripts["submit"], keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("submit %d jobs: %w", len(subs), err)
	}
	if len(reply) != 1+2*len(subs) {
		return nil, fmt.Errorf("submit %d jobs: %d values, expected %d", len(subs), len(reply), 1+2*len(subs))
	}
	now, err := reply[0].AsInt64()
	if err != nil {
		return nil, fmt.Errorf("submit %d jobs: %w", len(subs), err)
	}
	out := make([]Placement, len(subs))
	for i := range out {
		if err = call.decode(&out[i], now, reply[1+2*i:3+2*i]); err != nil {
			return nil, fmt.Errorf("submit job %s: %w", subs[i].JobID, err)
		}
	}
	return out, nil
}

// submitCall collects the arguments of one call: each node, and what jobs have in
// common, once, however many jobs name it.
type submitCall struct {
	layout Layout
	nodes  []string
	index  map[string]int // node -> its index from 1
	kinds  map[jobKind]int
	common []string // the texts of the kinds, in order
	jobs   []string // keys of records
	queues []string // keys of the queues of the kinds' classes, in order
	items  []string
}

// jobKind is what many jobs have in common; the script prepares it once.
type jobKind struct {
	tenant, replyTo, timeout  string
	class                     Class
	slots, priority, attempts int
}

func newSubmitCall(l Layout) *submitCall {
	return &submitCall{layout: l, index: make(map[string]int), kinds: make(map[jobKind]int)}
}

func (sc *submitCall) add(s *encodedSubmission) {
	kind := jobKind{
		tenant: s.Tenant, replyTo: s.ReplyTo, timeout: s.timeout(), class: s.Class,
		slots: s.Job.SlotCount(), priority: s.Job.Priority, attempts: s.Job.AttemptLimit(),
	}
	if sc.kinds[kind] == 0 {
		sc.kinds[kind] = len(sc.kinds) + 1
		sc.common = append(sc.common, kind.tenant, strconv.Itoa(kind.slots), kind.replyTo, kind.timeout,
			kind.class.ID, strconv.Itoa(kind.priority), strconv.Itoa(kind.attempts), kind.class.Definition)
		sc.queues = append(sc.queues, sc.layout.Line(s.Class.ID))
	}
	sc.jobs = append(sc.jobs, sc.layout.Job(s.JobID))
	sc.items = append(sc.items, strconv.Itoa(sc.kinds[kind]), rueidis.BinaryString(s.spec))
	for _, node := range s.Candidates {
		if sc.index[node] == 0 {
			sc.nodes = append(sc.nodes, node)
			sc.index[node] = len(sc.nodes)
		}
		sc.items = append(sc.items, strconv.Itoa(sc.index[node]))
	}
	sc.items = append(sc.items, "")
}

func (sc *submitCall) encode(cfg Config) (keys, args []string) {
	l := sc.layout
	keys = []string{l.Revisions(), l.Version(), l.Due()}
	for _, node := range sc.nodes {
		keys = append(keys, l.Node(node), l.Slots(node), l.Dispatch(node), l.Load(node))
	}
	args = []string{
		l.NodeEvents(), millis(cfg.HeartbeatLimit), millis(cfg.Retention), strconv.Itoa(len(sc.nodes)), strconv.Itoa(len(sc.kinds)),
	}
	return slices.Concat(keys, sc.jobs, sc.queues), slices.Concat(args, sc.common, sc.items)
}

// decode reads what the script says of one item.
func (sc *submitCall) decode(p *Placement, now int64, said []rueidis.RedisMessage) error {
	what, err := said[0].AsInt64()
	if err != nil {
		return err
	}
	if what == 0 {
		more, err := said[1].ToArray()
		if err != nil {
			return err
		}
		return sc.decodeRare(p, now, more)
	}
	used, err := said[1].AsInt64()
	if err != nil {
		return err
	}
	return sc.assigned(p, what, now, used)
}

func (sc *submitCall) assigned(p *Placement, node, now, used int64) (err error) {
	*p = Placement{Assigned: true, Attempt: 1, AssignedAtMS: now, Used: int(used)}
	p.Node, err = sc.node(node)
	return err
}

// decodeRare reads of an item that was not assigned by its first candidate.
func (sc *submitCall) decodeRare(p *Placement, now int64, reply []rueidis.RedisMessage) error {
	code, err := intAt(reply, 0)
	if err != nil {
		return err
	}
	switch code {
	case 0:
		p.Refusals, err = sc.decodeRefusals(reply, 1)
		return err
	case 1:
		node, used, err := twoInts(reply, 1)
		if err != nil {
			return err
		}
		if err = sc.assigned(p, node, now, used); err != nil {
			return err
		}
		p.Refusals, err = sc.decodeRefusals(reply, 3)
		return err
	case 2:
		if len(reply) < 4 {
			return fmt.Errorf("reply has %d values, expected 4", len(reply))
		}
		node, err := reply[1].ToString()
		if err != nil {
			return err
		}
		attempt, assigned, err := twoInts(reply, 2)
		*p = Placement{Assigned: true, Repeated: true, Node: node, Attempt: int(attempt), AssignedAtMS: assigned, Used: -1}
		return err
	case 3:
		*p = Placement{Behind: true}
		return nil
	case 4:
		position, err := intAt(reply, 1)
		*p = Placement{Waiting: true, Repeated: true, Position: int(position), Used: -1}
		return err
	default:
		return fmt.Errorf("unknown code %d", code)
	}
}

var refusalReasons = map[string]RefusalReason{
	"f": RefusedFull, "g": RefusedGone, "d": RefusedDraining, "s": RefusedSilent,
}

// decodeRefusals reads those that begin at index from.
func (sc *submitCall) decodeRefusals(reply []rueidis.RedisMessage, from int) (refusals []Refusal, err error) {
	for i := from; i < len(reply); i += 4 {
		index, err := intAt(reply, i)
		if err != nil {
			return nil, err
		}
		node, err := sc.node(index)
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

func (sc *submitCall) node(index int64) (string, error) {
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
