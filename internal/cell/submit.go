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
	reply, err := c.runner.CallReplicated(ctx, c.scripts["submit"], keys, args).ToArray()
	if err != nil {
		return nil, err
	}
	if len(reply) != 1+2*len(subs) {
		return nil, fmt.Errorf("%d values, expected %d", len(reply), 1+2*len(subs))
	}
	var now int64
	if err = readReply(reply, &now); err != nil {
		return nil, err
	}
	out = make([]Placement, len(subs))
	for i := range out {
		if err = call.decode(&out[i], now, reply[1+2*i:3+2*i]); err != nil {
			return nil, fmt.Errorf("job %s: %w", subs[i].JobID, err)
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
func (sc *submitCall) decode(p *Placement, now int64, values []rueidis.RedisMessage) error {
	var node int
	if err := readReply(values, &node); err != nil {
		return err
	}
	if node == 0 {
		more, err := values[1].ToArray()
		if err != nil {
			return err
		}
		return sc.decodeRare(p, now, more)
	}
	return sc.assigned(p, node, now, values[1:])
}

// assigned reads the slots in use on the node.
func (sc *submitCall) assigned(p *Placement, node int, now int64, values []rueidis.RedisMessage) (err error) {
	*p = Placement{Assigned: true, Attempt: 1, AssignedAtMS: now}
	if p.Node, err = sc.node(node); err != nil {
		return err
	}
	return readReply(values, &p.Used)
}

// decodeRare reads the answer for a job that its first candidate did not get.
func (sc *submitCall) decodeRare(p *Placement, now int64, reply []rueidis.RedisMessage) error {
	var code, node int
	err := readReply(reply, &code)
	if err != nil {
		return err
	}
	switch code {
	case 0:
		p.Refusals, err = sc.decodeRefusals(reply[1:])
	case 1:
		if err = readReply(reply, &code, &node); err == nil {
			err = sc.assigned(p, node, now, reply[2:])
		}
		if err == nil {
			p.Refusals, err = sc.decodeRefusals(reply[3:])
		}
	case 2:
		*p = Placement{Assigned: true, Repeated: true, Used: -1}
		err = readReply(reply[1:], &p.Node, &p.Attempt, &p.AssignedAtMS)
	case 3:
		*p = Placement{Behind: true}
	case 4:
		*p = Placement{Waiting: true, Repeated: true, Used: -1}
		err = readReply(reply[1:], &p.Position)
	default:
		err = fmt.Errorf("unknown code %d", code)
	}
	return err
}

func (sc *submitCall) decodeRefusals(reply []rueidis.RedisMessage) (refusals []Refusal, err error) {
	for values := range slices.Chunk(reply, 4) {
		var r Refusal
		var node int
		var letter string
		if err = readReply(values, &node, &letter, &r.Used, &r.MaxConcurrency); err != nil {
			return nil, err
		}
		if r.Node, err = sc.node(node); err != nil {
			return nil, err
		}
		if r.Reason = refusalReasons[letter]; r.Reason == "" {
			return nil, fmt.Errorf("unknown refusal %q", letter)
		}
		refusals = append(refusals, r)
	}
	return refusals, nil
}

func (sc *submitCall) node(index int) (string, error) {
	if index < 1 || index > len(sc.nodes) {
		return "", fmt.Errorf("node %d of %d", index, len(sc.nodes))
	}
	return sc.nodes[index-1], nil
}
