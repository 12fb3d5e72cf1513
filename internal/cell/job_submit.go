package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

// Submit places one job. Concurrent callers share a call. After *freeslot.Error (the submission
// cannot be sent), ErrNotSent and ErrStopped nothing was changed. After any other error the job may
// have been placed: repeat with the same JobID to find out.
func (c *Cell) Submit(ctx context.Context, s Submission) (Placement, error) {
	r := c.SubmitAll(ctx, []Submission{s})[0]
	return r.Placement, r.Err
}

// SubmitAll is Submit for several jobs at once. The results are in the order of subs. The jobs may
// be placed in another order.
func (c *Cell) SubmitAll(ctx context.Context, subs []Submission) []SubmitResult {
	return c.doAll(ctx, c.submits, subs, 1)
}

// doAll calls b for submissions, each with at least this many candidates. A submission that
// cannot be sent does not take part in the call.
func (c *Cell) doAll(
	ctx context.Context, b *script.Batch[encodedSubmission, Placement], subs []Submission, candidates int,
) []SubmitResult {
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
		l.NodeEvents(), millis(cfg.HeartbeatLimit), millis(cfg.Retention), strconv.Itoa(len(sc.nodes)),
		strconv.Itoa(len(sc.kinds)),
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
		refusals = append(refusals, Refusal{
			Node: node, Reason: reason, Used: int(r.Number()), MaxConcurrency: int(r.Number()),
		})
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
