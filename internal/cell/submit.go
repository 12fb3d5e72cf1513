package cell

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
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
	// before and behind the deadline in the record's field job.
	before, behind string
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
	e := encodedSubmission{Submission: s, spec: spec}
	e.before = " " + s.Class.ID + " " + strconv.Itoa(s.Job.Priority) + " " + strconv.Itoa(s.Job.AttemptLimit()) + " "
	if e.behind = " " + s.Class.Definition; s.Job.TimeoutMS == 0 {
		e.before, e.behind = e.before+"0"+e.behind, ""
	}
	return e, nil
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
	call := newSubmitCall(c.layout, len(subs))
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
	jobs   []string
	lines  []string // the queues of the kinds' classes, in order
	specs  []string
	plan   []int
}

// jobKind is what many jobs have in common; the script prepares it once.
type jobKind struct {
	tenant, replyTo, before, behind string
	slots                           int
	timeoutMS                       int64
}

func newSubmitCall(l Layout, jobs int) *submitCall {
	return &submitCall{
		layout: l, nodes: make([]string, 0, 2*jobs), index: make(map[string]int, 2*jobs), kinds: make(map[jobKind]int, 1),
		jobs: make([]string, 0, jobs), specs: make([]string, 0, jobs), plan: make([]int, 0, 4*jobs),
	}
}

func (sc *submitCall) add(s *encodedSubmission) {
	sc.jobs = append(sc.jobs, s.JobID)
	sc.specs = append(sc.specs, rueidis.BinaryString(s.spec))
	kind := jobKind{
		tenant: s.Tenant, replyTo: s.ReplyTo, before: s.before, behind: s.behind, slots: s.Job.SlotCount(), timeoutMS: s.Job.TimeoutMS,
	}
	k, ok := sc.kinds[kind]
	if !ok {
		k = len(sc.kinds) + 1
		sc.kinds[kind] = k
		sc.common = append(sc.common, kind.tenant, strconv.Itoa(kind.slots), kind.replyTo, s.timeout(), kind.before, kind.behind)
		sc.lines = append(sc.lines, sc.layout.Line(s.Class.ID))
	}
	sc.plan = append(sc.plan, k, len(s.Candidates))
	for _, node := range s.Candidates {
		i, ok := sc.index[node]
		if !ok {
			sc.nodes = append(sc.nodes, node)
			i = len(sc.nodes)
			sc.index[node] = i
		}
		sc.plan = append(sc.plan, i)
	}
}

// encodePlan writes the plan behind its head, as single bytes where all numbers fit.
func (sc *submitCall) encodePlan(head ...int) (plan, width string) {
	all := [...][]int{head, sc.plan}
	if slices.Max(head) > math.MaxUint8 {
		out := make([]byte, 0, 2*(len(head)+len(sc.plan)))
		for _, numbers := range all {
			for _, n := range numbers {
				out = binary.BigEndian.AppendUint16(out, uint16(n)) // batchItems * MaxCandidates is far from its end
			}
		}
		return rueidis.BinaryString(out), "2"
	}
	out := make([]byte, 0, len(head)+len(sc.plan))
	for _, numbers := range all {
		for _, n := range numbers {
			out = append(out, byte(n))
		}
	}
	return rueidis.BinaryString(out), "1"
}

func (sc *submitCall) encode(cfg Config) (keys, args []string) {
	l := sc.layout
	profile, slots, dispatch, load, record := before(l.Node), before(l.Slots), before(l.Dispatch), before(l.Load), before(l.Job)
	b := newKeyBuilder(4*len(sc.nodes) + len(sc.jobs))
	for _, node := range sc.nodes {
		b.add(profile, node)
		b.add(slots, node)
		b.add(dispatch, node)
		b.add(load, node)
	}
	for _, job := range sc.jobs {
		b.add(record, job)
	}
	keys = append(b.keys(l.Revisions(), l.Version(), l.Due()), sc.lines...)
	plan, width := sc.encodePlan(len(sc.nodes), len(sc.kinds), len(profile), len(record))
	args = make([]string, 0, 6+len(sc.common)+len(sc.specs))
	args = append(args, l.NodeEvents(), millis(cfg.HeartbeatLimit), strconv.Itoa(inlineSpec), millis(cfg.Retention), width, plan)
	args = append(args, sc.common...)
	return keys, append(args, sc.specs...)
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
