package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	json "github.com/go-json-experiment/json/v1"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/script"
)

// Submission is one job to place.
type Submission struct {
	// JobID is made by NewJobID; a repeated Submission must keep it.
	JobID  string
	Tenant string
	Job    *freeslot.Job
	// Candidates are tried in order: the first with enough free slots gets the job. There are 1 to
	// MaxCandidates; for EnqueueAll there may be none.
	Candidates []string
	// Class is the job's class.
	Class Class
	// ReplyTo is the replica whose reply stream gets the result.
	ReplyTo string

	// Only EnqueueAll uses the fields that follow.

	// Weight is the tenant's share among tenants whose jobs wait in the same class, 1 to MaxWeight.
	// 0 means 1.
	Weight int
	// Limits bounds how many such jobs run or wait.
	Limits []Limit
	// Once, if not empty, makes sure that the job is created once, even if its record is gone by
	// the time of a repetition. The Placement of a repetition then has JobID as its Owner. Redis
	// remembers Once for as long as an idempotency key, or until ForgetOnce. The job must have no
	// idempotency key.
	Once string
}

// Class names a group of jobs that fit the same nodes.
type Class struct {
	// ID is a hash of the canonical form, 16 hexadecimal digits.
	ID string
	// Definition is a ClassDefinition in JSON.
	Definition string
}

// ClassDefinition states which nodes fit.
type ClassDefinition struct {
	Service     string               `json:"service"`
	Requirement freeslot.Requirement `json:"requirement,omitzero"`
}

// ClassOf returns the class of a job whose submitter did not compute it.
func ClassOf(job *freeslot.Job) Class {
	return Class{
		ID:         class.ID(job.Service, &job.Requirement),
		Definition: mustJSON(ClassDefinition{Service: job.Service, Requirement: job.Requirement}),
	}
}

// Placement is the result of a Submission.
type Placement struct {
	// Assigned is false if every candidate refused.
	Assigned bool
	// Behind is true if jobs of the class wait already. The job must not pass them, so it was not
	// offered to the candidates. Enqueue it.
	Behind bool
	// Waiting is true if the job waits in the queue of its class at Position, counted from 1. A job
	// for later has Position 0.
	Waiting  bool
	Position int
	// Owner is the job that owns the idempotency key, if the key belongs to another job. The
	// submitted job was not created. Differs is true if the specs of the two differ.
	Owner   string
	Differs bool
	// Crowded is true if the tenant has as many waiting jobs as its limit allows. This one was not
	// created.
	Crowded bool
	// SubmittedAtMS is the time at which EnqueueAll put the job into the queue.
	SubmittedAtMS int64
	// Repeated is true if the record existed already: an earlier call with this id was applied,
	// although its answer was lost. Node and Attempt are then taken from the record.
	Repeated     bool
	Node         string
	Attempt      int
	AssignedAtMS int64
	// Used is the number of slots in use on Node after this call.
	Used int
	// Refusals says why the candidates before Node, or all of them, did not get the job.
	Refusals []Refusal
}

// RefusalReason says why a candidate did not get a job.
type RefusalReason string

// The reasons of a refusal.
const (
	RefusedFull     RefusalReason = "full"
	RefusedGone     RefusalReason = "gone"
	RefusedDraining RefusalReason = "draining"
	RefusedSilent   RefusalReason = "silent"
)

// refusalReasons maps the letters that scripts use.
var refusalReasons = map[string]RefusalReason{
	"f": RefusedFull, "g": RefusedGone, "d": RefusedDraining, "s": RefusedSilent,
}

// Refusal carries a candidate's fresh state back to the cache.
type Refusal struct {
	Node   string
	Reason RefusalReason
	// Used and MaxConcurrency have no meaning for RefusedGone.
	Used           int
	MaxConcurrency int
}

// Submit places one job. Concurrent callers share a call. After *freeslot.Error (the submission
// cannot be sent), ErrNotSent and ErrStopped nothing was changed. After any other error the job may
// have been placed: repeat with the same JobID to find out.
func (c *Cell) Submit(ctx context.Context, s Submission) (Placement, error) {
	r := c.SubmitAll(ctx, []Submission{s})[0]
	return r.Placement, r.Err
}

// SubmitResult is one result of SubmitAll.
type SubmitResult struct {
	Placement Placement
	Err       error
}

// SubmitAll is Submit for several jobs at once. The results are in the order of subs. The jobs may
// be placed in another order.
func (c *Cell) SubmitAll(ctx context.Context, subs []Submission) []SubmitResult {
	return c.doAll(ctx, c.submits, subs, 1)
}

// doAll calls b for submissions, each with at least this many candidates. A submission that
// cannot be sent does not take part in the call.
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

// encodedSubmission is a validated submission with its spec.
type encodedSubmission struct {
	Submission
	spec []byte
}

func encodeSubmission(s Submission, candidates int) (encodedSubmission, error) {
	if err := s.validate(candidates); err != nil {
		return encodedSubmission{}, err
	}
	spec, err := json.Marshal(s.Job) // valid UTF-8, as encoding/json writes it, in less than half the time
	if err != nil {
		return encodedSubmission{}, freeslot.Invalid("job", "cannot be encoded: %v", err)
	}
	if s.Class.ID == "" {
		s.Class = ClassOf(s.Job)
	}
	return encodedSubmission{Submission: s, spec: spec}, nil
}

func submissionSize(s encodedSubmission) int { return len(s.spec) + controlOverhead }

// orNone returns n in the form that scripts read: an empty string stands for none, which is 0 here.
func orNone(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// submit makes one script call for a batch.
func (c *Cell) submit(ctx context.Context, subs []encodedSubmission) (out []Placement, err error) {
	defer wrap(&err, "submit %d jobs", len(subs))
	call := newSubmitCall(c.layout, len(subs))
	for i := range subs {
		call.add(&subs[i])
	}
	keys, args := call.encode(c.cfg)
	r := script.ReadReply(c.runner.CallReplicated(ctx, c.scripts["submit"], keys, args))
	now := r.Number()
	if r.Err == nil && len(r.Values) != 2*len(subs) {
		r.Err = fmt.Errorf("%d values, expected %d", len(r.Values), 2*len(subs))
	}
	if r.Err != nil {
		return nil, r.Err
	}
	out = make([]Placement, len(subs))
	for i := range out {
		if out[i] = call.decode(&r, now); r.Err != nil {
			return nil, fmt.Errorf("job %s: %w", subs[i].JobID, r.Err)
		}
	}
	return out, nil
}

// submitCall collects the arguments of one call. Nodes, and what jobs have in common, appear once,
// no matter how many jobs name them.
type submitCall struct {
	layout Layout
	nodes  []string
	index  map[string]int  // node -> its index, from 1
	kinds  map[jobKind]int // kind -> its index, from 1
	common []string        // the arguments of the kinds, in order
	jobs   []string        // keys of records
	queues []string        // keys of the queues of the kinds' classes, in order
	items  []string
}

// jobKind holds what many jobs have in common. The script prepares it once.
type jobKind struct {
	tenant, replyTo           string
	timeoutMS                 int64
	class                     Class
	slots, priority, attempts int
}

func newSubmitCall(l Layout, jobs int) *submitCall {
	return &submitCall{
		layout: l, index: make(map[string]int), kinds: make(map[jobKind]int),
		jobs: make([]string, 0, jobs), items: make([]string, 0, itemArgs*jobs),
	}
}

// itemArgs is about the number of arguments for a job: its kind, its spec, its candidates and the
// end.
const itemArgs = 5

func (sc *submitCall) add(s *encodedSubmission) {
	kind := jobKind{
		tenant: s.Tenant, replyTo: s.ReplyTo, timeoutMS: s.Job.TimeoutMS, class: s.Class,
		slots: s.Job.SlotCount(), priority: s.Job.Priority, attempts: s.Job.AttemptLimit(),
	}
	if sc.kinds[kind] == 0 {
		sc.kinds[kind] = len(sc.kinds) + 1
		sc.common = append(sc.common, kind.tenant, strconv.Itoa(kind.slots), kind.replyTo, orNone(kind.timeoutMS),
			kind.class.ID, strconv.Itoa(kind.priority), strconv.Itoa(kind.attempts), kind.class.Definition)
		sc.queues = append(sc.queues, sc.layout.Queue(s.Class.ID))
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

// decode reads the two values of one item.
func (sc *submitCall) decode(r *script.Reply, now int64) Placement {
	if node := r.Number(); node != 0 {
		return sc.assigned(r, node, now)
	}
	values, ok := r.Next()
	if !ok {
		return Placement{}
	}
	more := script.ReadReply(&values)
	p := sc.decodeRare(&more, now)
	r.Err = more.Err
	return p
}

// assigned reads the slots in use on the node.
func (sc *submitCall) assigned(r *script.Reply, node, now int64) Placement {
	return Placement{Assigned: true, Attempt: 1, AssignedAtMS: now, Node: sc.node(r, node), Used: int(r.Number())}
}

// decodeRare reads the answer for a job that its first candidate did not get.
func (sc *submitCall) decodeRare(r *script.Reply, now int64) (p Placement) {
	switch code := r.Number(); code {
	case 0:
		p.Refusals = sc.decodeRefusals(r)
	case 1:
		p = sc.assigned(r, r.Number(), now)
		p.Refusals = sc.decodeRefusals(r)
	case 2:
		p = repeated(r)
	case 3:
		p.Behind = true
	case 4:
		p = Placement{Waiting: true, Repeated: true, Used: -1, Position: int(r.Number())}
	default:
		r.Err = fmt.Errorf("unknown code %d", code)
	}
	return p
}

// repeated reads where a job runs that an earlier call with its id placed.
func repeated(r *script.Reply) Placement {
	return Placement{
		Assigned: true, Repeated: true, Used: -1, Node: r.Text(), Attempt: int(r.Number()), AssignedAtMS: r.Number(),
	}
}

func (sc *submitCall) decodeRefusals(r *script.Reply) (refusals []Refusal) {
	for r.Err == nil && len(r.Values) > 0 {
		node, letter := sc.node(r, r.Number()), r.Text()
		reason := refusalReasons[letter]
		if r.Err == nil && reason == "" {
			r.Err = fmt.Errorf("unknown refusal %q", letter)
		}
		refusals = append(refusals, Refusal{Node: node, Reason: reason, Used: int(r.Number()), MaxConcurrency: int(r.Number())})
	}
	return refusals
}

// node returns the node with an index in the answer.
func (sc *submitCall) node(r *script.Reply, index int64) string {
	if r.Err == nil && (index < 1 || index > int64(len(sc.nodes))) {
		r.Err = fmt.Errorf("node %d of %d", index, len(sc.nodes))
	}
	if r.Err != nil {
		return ""
	}
	return sc.nodes[index-1]
}
