package cell

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
)

// model says what a cell must do, in the plainest way. Its keys are plain maps and
// its indexes are computed when they are looked at.
type model struct {
	revision  Revision
	nodes     map[string]*modelNode
	jobs      map[string]*modelJob
	order     []string // jobs as they were submitted
	revisions map[string]Revision
	replies   map[string][]string
	gateways  map[string][]string // of those whose streams exist
	lines     map[string]*modelLine
	// serves is what nodes were found to serve, by the version of the configuration.
	serves        map[string]modelServes
	servesVersion uint64
}

// modelLine is the queue of a class: virtual time and each tenant's tag, as long as it has jobs.
type modelLine struct {
	jobs    []*modelJob // in any order
	virtual int
	tags    map[string]int
}

type modelServes struct {
	version uint64
	classes []string
}

type modelNode struct {
	profile freeslot.Node
	epoch   Epoch
	status  freeslot.Status
	stream  []string
	gateway string // whose stream delivers; "": the node's own
	session string
	figures string // of the last heartbeat that told any
}

type modelJob struct {
	freeslot.JobStatus
	node    string // of the last attempt
	epoch   Epoch
	slots   int
	replyTo string
	class   string
	limit   int // attempts that may fail
	tag     int // where it stands in its line, among those of its priority
	avoid   bool
	expires bool // it is being stopped for its deadline
	failure *freeslot.JobError
}

func (j *modelJob) runs() bool {
	return j.State == freeslot.StateRunning || j.State == freeslot.StateCancelling
}

// entry is how a stream tells of an attempt.
func (j *modelJob) entry(cancel bool) string { return fmt.Sprintf("%s %d %v", j.ID, j.Attempt, cancel) }

// deliver tells the node of an attempt.
func (m *model) deliver(n *modelNode, j *modelJob, cancel bool) {
	if n.gateway == "" {
		n.stream = append(n.stream, j.entry(cancel))
	} else if entries, open := m.gateways[n.gateway]; open {
		m.gateways[n.gateway] = append(entries, fmt.Sprint(j.entry(cancel), " ", n.profile.ID, " ", n.session))
	}
}

func newModel() *model {
	return &model{
		nodes: map[string]*modelNode{}, jobs: map[string]*modelJob{},
		revisions: map[string]Revision{}, replies: map[string][]string{}, gateways: map[string][]string{}, lines: map[string]*modelLine{}, serves: map[string]modelServes{},
	}
}

func (m *model) announce(node string) {
	m.revision++
	m.revisions[node] = m.revision
}

// owns lists what the node owns: every job on it that has not ended.
func (m *model) owns(node string) (jobs []*modelJob, sum int) {
	for _, id := range m.order {
		if j := m.jobs[id]; j.node == node && j.runs() {
			jobs = append(jobs, j)
			sum += j.slots
		}
	}
	return jobs, sum
}

func (m *model) end(j *modelJob, state freeslot.State, result []byte, err *freeslot.JobError) {
	j.State, j.Error = state, err
	if state == freeslot.StateExpired {
		j.Error = j.failure
	}
	if state == freeslot.StateSucceeded {
		j.Result = result
	}
	if j.replyTo != "" {
		m.replies[j.replyTo] = append(m.replies[j.replyTo], j.ID+" "+string(state))
	}
}

// abandon takes what the node owns from it.
func (m *model) abandon(node string, counted bool, code, message string) (lost []string) {
	jobs, _ := m.owns(node)
	for _, j := range jobs {
		if j.State == freeslot.StateCancelling {
			j.tried(freeslot.AttemptEnd(m.stopped(j)), "")
			m.end(j, m.stopped(j), nil, nil)
		} else {
			m.again(j, counted, freeslot.AttemptLost, &freeslot.JobError{Code: code, Message: message}, 0)
		}
		lost = append(lost, j.ID)
	}
	delete(m.serves, node)
	slices.Sort(lost)
	return lost
}

// stopped is how a job ends that somebody asked to stop.
func (m *model) stopped(j *modelJob) freeslot.State {
	if j.expires {
		return freeslot.StateExpired
	}
	return freeslot.StateCancelled
}

// again sends a job to its next attempt.
func (m *model) again(j *modelJob, counted bool, ended freeslot.AttemptEnd, failure *freeslot.JobError, delay time.Duration) {
	j.failure, j.avoid = failure, true
	if counted {
		j.Failures++
	} else {
		ended = freeslot.AttemptHandedBack
	}
	j.tried(ended, failure.Code)
	switch {
	case counted && j.Failures >= j.limit:
		m.end(j, freeslot.StateDead, nil, failure)
		return
	case delay > 0:
		j.State, j.Error = freeslot.StateRetryWait, failure
	default:
		m.back(j)
	}
	m.tell(j, "requeued")
}

// tried notes that the running attempt did not end the job well.
func (j *modelJob) tried(ended freeslot.AttemptEnd, code string) {
	past := append(slices.Clone(j.Attempts), freeslot.PastAttempt{Attempt: j.Attempt, Node: j.node, Ended: ended, Code: code})
	j.Attempts = past[max(len(past)-freeslot.MaxPastAttempts, 0):]
}

func (m *model) tell(j *modelJob, what string) {
	if j.replyTo != "" {
		m.replies[j.replyTo] = append(m.replies[j.replyTo], j.ID+" "+what)
	}
}

func (m *model) lineOf(class string) *modelLine {
	if m.lines[class] == nil {
		m.lines[class] = &modelLine{tags: map[string]int{}}
	}
	return m.lines[class]
}

// back lets a job wait that was charged before: it stands with those that are served now.
func (m *model) back(j *modelJob) {
	l := m.lineOf(j.class)
	j.State, j.Error, j.tag = freeslot.StateWaiting, nil, l.virtual
	l.jobs = append(l.jobs, j)
}

func (m *model) leave(j *modelJob) {
	l := m.lines[j.class]
	l.jobs = slices.DeleteFunc(l.jobs, func(other *modelJob) bool { return other == j })
	if len(l.jobs) == 0 {
		delete(m.lines, j.class)
	}
}

// inLine is who waits in a class, the next first.
func (m *model) inLine(class string) []*modelJob {
	if m.lines[class] == nil {
		return nil
	}
	return slices.SortedFunc(slices.Values(m.lines[class].jobs), func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.tag, b.tag), cmp.Compare(a.ID, b.ID))
	})
}

// position is a job's place; 1 also where it stands in no line.
func (m *model) position(j *modelJob) int {
	return slices.Index(m.inLine(j.class), j) + 1
}

// next is the job of a class that is next on a node.
func (m *model) next(class, node string) *modelJob {
	for i, j := range m.inLine(class) {
		const look = 64
		if i < look && j.slots <= m.nodes[node].profile.MaxConcurrency && !(j.avoid && j.node == node) {
			return j
		}
	}
	return nil
}

// take gives the node's free slots to jobs of these classes, and returns for each that began
// the slots in use then.
func (m *model) take(node string, classes []string, deliver func(*modelJob)) (begun []*modelJob, used []int) {
	n := m.nodes[node]
	for {
		_, sum := m.owns(node)
		var best *modelJob
		large := -1 // the highest priority of those that need more room
		for _, class := range classes {
			j := m.next(class, node)
			switch {
			case j == nil:
			case sum+j.slots > n.profile.MaxConcurrency:
				large = max(large, j.Priority)
			case best == nil || cmp.Or(cmp.Compare(best.Priority, j.Priority), cmp.Compare(j.ID, best.ID)) < 0:
				best = j
			}
		}
		if best == nil || large > best.Priority {
			return begun, used
		}
		l := m.lines[best.class]
		l.virtual = max(l.virtual, best.tag)
		m.leave(best)
		best.State, best.Node, best.node, best.epoch = freeslot.StateRunning, node, node, n.epoch
		best.Attempt++
		deliver(best)
		m.tell(best, fmt.Sprintf("assigned %s %d %d", node, best.Attempt, sum+best.slots))
		begun, used = append(begun, best), append(used, sum+best.slots)
	}
}

// offer is take for a node that may get no jobs at all; why says so.
func (m *model) offer(node string, classes []string) (begun []*modelJob, used []int, why RefusalReason) {
	n := m.nodes[node]
	if n == nil {
		return nil, nil, RefusedGone
	}
	_, sum := m.owns(node)
	switch {
	case n.status != freeslot.StatusOnline:
		return nil, nil, RefusedDraining
	case sum >= n.profile.MaxConcurrency:
		return nil, nil, RefusedFull
	}
	begun, used = m.take(node, classes, func(j *modelJob) { m.deliver(n, j, false) })
	if len(used) > 0 && used[len(used)-1] >= n.profile.MaxConcurrency {
		m.announce(node)
	}
	return begun, used, ""
}

func (m *model) takeAll(node string, classes []string, config uint64) Taken {
	begun, _, why := m.offer(node, classes)
	former, known := m.serves[node]
	if (why == "" || why == RefusedFull) && (!known || former.version != 0) {
		if m.servesVersion == 0 {
			m.servesVersion = config
		}
		if m.servesVersion == config {
			s := modelServes{config, slices.Clone(classes)}
			if former.version == config {
				for _, class := range former.classes {
					if m.lines[class] != nil {
						s.classes = append(s.classes, class)
					}
				}
			}
			slices.Sort(s.classes)
			s.classes = slices.Compact(s.classes)
			m.serves[node] = s
		}
	}
	t := Taken{Jobs: len(begun), Refusal: why}
	if n := m.nodes[node]; n != nil {
		_, t.Used = m.owns(node)
		t.MaxConcurrency = n.profile.MaxConcurrency
	}
	return t
}

func (m *model) enqueue(subs []Submission) []Placement {
	out := make([]Placement, len(subs))
	var nodes []string
	wishes := make(map[string][]string)
	for i, s := range subs {
		class := ClassOf(s.Job).ID
		for _, node := range s.Candidates {
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
		j := m.jobs[s.JobID]
		if j != nil && j.State != freeslot.StateWaiting && j.State != freeslot.StateRetryWait {
			out[i] = Placement{Assigned: true, Repeated: true, Node: j.Node, Attempt: j.Attempt, Used: -1}
			continue
		}
		if j == nil {
			j = m.add(s)
			l := m.lineOf(class)
			j.State, j.tag = freeslot.StateWaiting, max(l.virtual, l.tags[j.Tenant])
			l.tags[j.Tenant] = j.tag + max(j.slots*1024/max(s.Weight, 1), 1)
			l.jobs = append(l.jobs, j)
		}
		for _, node := range s.Candidates {
			wishes[node] = append(wishes[node], class)
		}
	}
	began := make(map[string]Placement)
	for _, node := range nodes {
		begun, used, _ := m.offer(node, wishes[node])
		for i, j := range begun {
			began[j.ID] = Placement{Assigned: true, Node: node, Attempt: j.Attempt, Used: used[i]}
		}
	}
	for i, s := range subs {
		if out[i].Assigned {
			continue
		}
		out[i] = Placement{Waiting: true, Position: m.position(m.jobs[s.JobID]), Used: -1}
		if p, ok := began[s.JobID]; ok {
			out[i] = p
		}
	}
	return out
}

// add makes a job that is nowhere yet.
func (m *model) add(s Submission) *modelJob {
	j := &modelJob{
		JobStatus: freeslot.JobStatus{
			ID: s.JobID, Tenant: s.Tenant, Service: s.Job.Service, Class: ClassOf(s.Job).ID, Slots: s.Job.SlotCount(), Priority: s.Job.Priority,
			DeadlineMS: min(s.Job.TimeoutMS, 1),
		},
		slots: s.Job.SlotCount(), replyTo: s.ReplyTo, class: ClassOf(s.Job).ID, limit: s.Job.AttemptLimit(),
	}
	m.jobs[s.JobID] = j
	m.order = append(m.order, s.JobID)
	return j
}

// due is what happens once the job's pause or deadline is over.
func (m *model) due(j *modelJob) (d Due) {
	switch {
	case j.State == freeslot.StateRetryWait:
		m.back(j)
		d.Classes = []Class{{ID: j.class, Definition: mustJSON(ClassDefinition{Service: j.Service})}}
	case j.DeadlineMS == 0 || j.State.Terminal():
	case j.State == freeslot.StateWaiting:
		m.leave(j)
		m.end(j, freeslot.StateExpired, nil, nil)
		d.Expired = 1
	case j.expires: // the node did not confirm
		j.tried(freeslot.AttemptExpired, "")
		m.end(j, freeslot.StateExpired, nil, nil)
	default:
		j.State, j.expires = freeslot.StateCancelling, true
		m.deliver(m.nodes[j.node], j, true)
		d.Expired = 1
	}
	return d
}

// reap takes a node out that fell silent.
func (m *model) reap(node string, epoch Epoch, silent bool) Reaped {
	n := m.nodes[node]
	if n == nil || n.epoch != epoch || !silent {
		return Reaped{}
	}
	lost := m.abandon(node, true, freeslot.JobErrorNodeLost, "the node fell silent")
	m.gone(node)
	return Reaped{Gone: true, Jobs: lost}
}

func (m *model) gone(node string) {
	delete(m.nodes, node)
	delete(m.revisions, node)
	m.announce("-" + node)
}

func (m *model) register(profile freeslot.Node, epoch Epoch) (lost []string, changed bool) {
	n := m.nodes[profile.ID]
	if n != nil && n.epoch == epoch {
		n.gateway = ""
		if mustJSON(n.profile) == mustJSON(profile) {
			return nil, false
		}
		n.profile = profile
		m.serves[profile.ID] = modelServes{} // a mark, for longer than a history takes
	} else {
		lost = m.abandon(profile.ID, true, freeslot.JobErrorNodeLost, "the node's agent restarted and lost the job")
		m.nodes[profile.ID] = &modelNode{profile: profile, epoch: epoch, status: freeslot.StatusOnline}
	}
	delete(m.revisions, "-"+profile.ID)
	m.announce(profile.ID)
	return lost, true
}

func (m *model) deregister(node string, epoch Epoch) (lost []string, err error) {
	n := m.nodes[node]
	if n == nil {
		return nil, nil
	}
	if n.epoch != epoch {
		return nil, ErrSuperseded
	}
	lost = m.abandon(node, false, freeslot.JobErrorInterrupted, "the node left before the job was done")
	m.gone(node)
	return lost, nil
}

// heartbeat sends one as an agent does, by a gateway's session or directly.
func (m *model) heartbeat(hb Heartbeat, read int, gateway, session string) (HeartbeatReply, error) {
	n := m.nodes[hb.Node]
	if n == nil {
		return HeartbeatReply{}, ErrUnknownNode
	}
	if n.epoch != hb.Epoch {
		return HeartbeatReply{}, ErrSuperseded
	}
	m.announce(hb.Node)
	n.status, n.gateway, n.session = hb.Status, gateway, session
	if hb.Resources != nil {
		n.figures = string(hb.Resources)
	}
	if read > 0 {
		n.stream = n.stream[read-1:]
	}
	jobs, sum := m.owns(hb.Node)
	reply := HeartbeatReply{Revision: m.revision, Used: sum}
	for _, j := range jobs {
		a := Attempt{j.ID, j.Attempt}
		if !slices.Contains(hb.Running, a) {
			reply.Start = append(reply.Start, a)
		}
		if j.State == freeslot.StateCancelling {
			reply.Cancel = append(reply.Cancel, a)
		}
	}
	for _, a := range hb.Running {
		owned := slices.ContainsFunc(jobs, func(j *modelJob) bool { return a == Attempt{j.ID, j.Attempt} })
		if !owned && !slices.Contains(reply.Stop, a) {
			reply.Stop = append(reply.Stop, a)
		}
	}
	reply.Start, reply.Stop, reply.Cancel = sortedAttempts(reply.Start), sortedAttempts(reply.Stop), sortedAttempts(reply.Cancel)
	if gateway != "" && len(reply.Start)+len(reply.Stop)+len(reply.Cancel) > 0 {
		n.stream = nil // nobody reads it
	}
	return reply, nil
}

func sortedAttempts(as []Attempt) []Attempt {
	out := append([]Attempt{}, as...)
	slices.SortFunc(out, func(a, b Attempt) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.N, b.N)) })
	return out
}

func (m *model) submit(s Submission) Placement {
	if j := m.jobs[s.JobID]; j != nil {
		if j.State == freeslot.StateWaiting || j.State == freeslot.StateRetryWait {
			return Placement{Waiting: true, Repeated: true, Position: m.position(j), Used: -1}
		}
		return Placement{Assigned: true, Repeated: true, Node: j.Node, Attempt: j.Attempt, Used: -1}
	}
	if m.lines[ClassOf(s.Job).ID] != nil {
		return Placement{Behind: true}
	}
	slots := max(s.Job.Slots, 1)
	var refusals []Refusal
	for _, id := range s.Candidates {
		n := m.nodes[id]
		if n == nil {
			refusals = append(refusals, Refusal{Node: id, Reason: RefusedGone})
			continue
		}
		_, used := m.owns(id)
		reason := RefusalReason("")
		if n.status != freeslot.StatusOnline {
			reason = RefusedDraining
		} else if used+slots > n.profile.MaxConcurrency {
			reason = RefusedFull
		}
		if reason != "" {
			refusals = append(refusals, Refusal{Node: id, Reason: reason, Used: used, MaxConcurrency: n.profile.MaxConcurrency})
			continue
		}
		j := m.add(s)
		j.State, j.Node, j.Attempt, j.node, j.epoch = freeslot.StateRunning, id, 1, id, n.epoch
		m.deliver(n, j, false)
		if used+slots == n.profile.MaxConcurrency {
			m.announce(id)
		}
		return Placement{Assigned: true, Node: id, Attempt: 1, Used: used + slots, Refusals: refusals}
	}
	return Placement{Refusals: refusals}
}

func (m *model) complete(comp Completion) CompletionOutcome {
	j := m.jobs[comp.Attempt.Job]
	switch {
	case j == nil || j.Attempt == 0 || comp.Attempt.N != j.Attempt || comp.Epoch != j.epoch:
		return CompletedStale
	case !j.runs():
		// Whoever asks: the epoch was given this attempt, and it has ended.
		return CompletedBefore
	case comp.Node != j.node:
		return CompletedStale
	}
	n := m.nodes[j.node]
	_, before := m.owns(j.node)
	switch {
	case comp.Next != Never && j.State == freeslot.StateRunning:
		m.again(j, comp.Next == Retry, freeslot.AttemptFailed, comp.Error, comp.RetryDelay)
	case comp.Next != Never || comp.State == freeslot.StateCancelled:
		if comp.Error != nil {
			j.failure = comp.Error // which is told of a job that expires
		}
		code := ""
		if comp.Error != nil && j.expires {
			code = comp.Error.Code
		}
		j.tried(freeslot.AttemptEnd(m.stopped(j)), code)
		m.end(j, m.stopped(j), nil, nil)
	case comp.State != freeslot.StateSucceeded:
		code := ""
		if comp.Error != nil {
			code = comp.Error.Code
		}
		j.tried(freeslot.AttemptEnd(comp.State), code)
		m.end(j, comp.State, comp.Result, comp.Error)
	default:
		m.end(j, comp.State, comp.Result, comp.Error)
	}
	if s := m.serves[comp.Node]; s.version != 0 && s.version == m.servesVersion && n.status == freeslot.StatusOnline {
		// An agent gets them with the answer; one that does not ask for them, by its stream.
		m.take(comp.Node, s.classes, func(j *modelJob) { n.stream = append(n.stream, j.entry(false)) })
	}
	_, after := m.owns(comp.Node)
	if limit := n.profile.MaxConcurrency; (before >= limit) != (after >= limit) {
		m.announce(comp.Node)
	}
	return Completed
}

func (m *model) find(tenant, job string) (*modelJob, error) {
	j := m.jobs[job]
	if j == nil || tenant != "" && j.Tenant != tenant {
		return nil, errNotFound
	}
	return j, nil
}

func (m *model) cancel(tenant, job string, seen Seen) (freeslot.JobStatus, error) {
	j, err := m.find(tenant, job)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	stopped := j.State == freeslot.StateCancelling || j.State == freeslot.StateCancelled
	if seen.Attempt > 0 && seen.Attempt != j.Attempt || !stopped && seen.State != "" && seen.State != j.State {
		return j.told(), &freeslot.Error{Code: freeslot.CodeConflict}
	}
	switch j.State {
	case freeslot.StateRunning:
		j.State = freeslot.StateCancelling
		m.deliver(m.nodes[j.node], j, true)
	case freeslot.StateWaiting:
		m.leave(j)
		m.end(j, freeslot.StateCancelled, nil, nil)
	case freeslot.StateRetryWait:
		m.end(j, freeslot.StateCancelled, nil, nil)
	default:
	}
	return j.JobStatus, nil
}

func (m *model) attach(tenant, job, replica string) (freeslot.JobStatus, error) {
	j, err := m.find(tenant, job)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	if !j.State.Terminal() && j.replyTo != replica {
		if j.replyTo != "" {
			m.replies[j.replyTo] = append(m.replies[j.replyTo], job+" detached")
		}
		j.replyTo = replica
	}
	return j.told(), nil
}

// told is the status as it is shown: a job that waits again is on no node.
func (j *modelJob) told() freeslot.JobStatus {
	s := j.JobStatus
	if s.State == freeslot.StateWaiting {
		s.Node = ""
	}
	return s
}

// view is what can be seen of a cell.
type view struct {
	Revision  Revision
	Revisions map[string]Revision
	Nodes     map[string]nodeView
	Jobs      map[string]freeslot.JobStatus
	Online    []string
	Pools     map[string][]string
	Finished  []string
	// Unsuccessful holds the ends that are no success, by state.
	Unsuccessful map[freeslot.State]map[string]bool
	Replies      map[string][]string
	Gateways     map[string][]string
	Lines        map[string][]string
	Virtual      map[string]int
	Serves       map[string]string
}

type nodeView struct {
	Epoch, Status, Max string
	Figures            string
	Sum                int
	Owned              map[string]string
	Stream             []string
}

func (m *model) view() view {
	v := view{
		Revision: m.revision, Revisions: m.revisions, Nodes: map[string]nodeView{}, Jobs: map[string]freeslot.JobStatus{},
		Pools: map[string][]string{"p": nil, "q": nil}, Replies: m.replies, Gateways: m.gateways,
		Lines: map[string][]string{}, Virtual: map[string]int{}, Serves: map[string]string{},
		Unsuccessful: map[freeslot.State]map[string]bool{
			freeslot.StateFailed: {}, freeslot.StateCancelled: {}, freeslot.StateExpired: {}, freeslot.StateDead: {},
		},
	}
	for class, l := range m.lines {
		for _, j := range m.inLine(class) {
			v.Lines[class] = append(v.Lines[class], fmt.Sprint(j.ID, " ", j.tag))
		}
		v.Virtual[class] = l.virtual
	}
	for node, s := range m.serves {
		v.Serves[node] = fmt.Sprint(s.version, s.classes)
	}
	for _, id := range []string{"a", "b", "c"} {
		n := m.nodes[id]
		if n == nil {
			v.Nodes[id] = nodeView{Owned: map[string]string{}}
			continue
		}
		jobs, sum := m.owns(id)
		nv := nodeView{
			Epoch: n.epoch, Status: string(n.status), Max: strconv.Itoa(n.profile.MaxConcurrency),
			Sum: sum, Owned: map[string]string{}, Stream: n.stream, Figures: n.figures,
		}
		for _, j := range jobs {
			nv.Owned[j.ID] = fmt.Sprintf("%d:%s:%d:%v", j.Attempt, j.epoch, j.slots, j.State == freeslot.StateCancelling)
		}
		v.Nodes[id] = nv
		if n.status == freeslot.StatusOnline {
			v.Online = append(v.Online, id)
		}
		for _, p := range n.profile.Pools {
			v.Pools[p] = append(v.Pools[p], id)
		}
	}
	for id, j := range m.jobs {
		status := j.told()
		if j.State == freeslot.StateWaiting {
			status.Position = m.position(j)
		}
		v.Jobs[id] = status
		if j.State.Terminal() && j.State != freeslot.StateDead {
			v.Finished = append(v.Finished, id)
		}
		if ids := v.Unsuccessful[j.State]; ids != nil {
			ids[id] = true
		}
	}
	slices.Sort(v.Finished)
	return v
}
