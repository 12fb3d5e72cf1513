package cell

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

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
}

type modelNode struct {
	profile freeslot.Node
	epoch   Epoch
	status  freeslot.Status
	stream  []string // job, or job and "1" for a cancel
	figures string   // of the last heartbeat
}

type modelJob struct {
	freeslot.JobStatus
	node    string
	epoch   Epoch
	slots   int
	replyTo string
}

func newModel() *model {
	return &model{
		nodes: map[string]*modelNode{}, jobs: map[string]*modelJob{},
		revisions: map[string]Revision{}, replies: map[string][]string{},
	}
}

func (m *model) announce(node string) {
	m.revision++
	m.revisions[node] = m.revision
}

// owns lists what the node owns: every job on it that has not ended.
func (m *model) owns(node string) (jobs []*modelJob, sum int) {
	for _, id := range m.order {
		if j := m.jobs[id]; j.node == node && !j.State.Terminal() {
			jobs = append(jobs, j)
			sum += j.slots
		}
	}
	return jobs, sum
}

func (m *model) end(j *modelJob, state freeslot.State, result []byte, err *freeslot.JobError) {
	j.State, j.Error = state, err
	if state == freeslot.StateSucceeded {
		j.Result = result
	}
	if j.replyTo != "" {
		m.replies[j.replyTo] = append(m.replies[j.replyTo], j.ID+" "+string(state))
	}
}

// abandon ends what the node owns, in the order of the jobs' names: Redis' own order
// is any, so both sides compare sorted.
func (m *model) abandon(node, code, message string) (lost []string) {
	jobs, _ := m.owns(node)
	for _, j := range jobs {
		if j.State == freeslot.StateCancelling {
			m.end(j, freeslot.StateCancelled, nil, nil)
		} else {
			m.end(j, freeslot.StateFailed, nil, &freeslot.JobError{Code: code, Message: message})
		}
		lost = append(lost, j.ID)
	}
	slices.Sort(lost)
	return lost
}

func (m *model) register(profile freeslot.Node, epoch Epoch) (lost []string, changed bool) {
	n := m.nodes[profile.ID]
	if n != nil && n.epoch == epoch {
		if mustJSON(n.profile) == mustJSON(profile) {
			return nil, false
		}
		n.profile = profile
	} else {
		lost = m.abandon(profile.ID, freeslot.JobErrorNodeLost, "the node's agent restarted and lost the job")
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
	lost = m.abandon(node, freeslot.JobErrorInterrupted, "the node left before the job was done")
	delete(m.nodes, node)
	delete(m.revisions, node)
	m.announce("-" + node)
	return lost, nil
}

func (m *model) heartbeat(hb Heartbeat, read int) (HeartbeatReply, error) {
	n := m.nodes[hb.Node]
	if n == nil {
		return HeartbeatReply{}, ErrUnknownNode
	}
	if n.epoch != hb.Epoch {
		return HeartbeatReply{}, ErrSuperseded
	}
	m.announce(hb.Node)
	n.status, n.figures = hb.Status, string(hb.Resources)
	if read > 0 {
		n.stream = n.stream[read-1:]
	}
	jobs, sum := m.owns(hb.Node)
	reply := HeartbeatReply{Revision: m.revision, Used: sum}
	for _, j := range jobs {
		a := Attempt{j.ID, 1}
		if !slices.Contains(hb.Running, a) {
			reply.Start = append(reply.Start, a)
		}
		if j.State == freeslot.StateCancelling {
			reply.Cancel = append(reply.Cancel, a)
		}
	}
	for _, a := range hb.Running {
		owned := slices.ContainsFunc(jobs, func(j *modelJob) bool { return a == Attempt{j.ID, 1} })
		if !owned && !slices.Contains(reply.Stop, a) {
			reply.Stop = append(reply.Stop, a)
		}
	}
	reply.Start, reply.Stop, reply.Cancel = sortedAttempts(reply.Start), sortedAttempts(reply.Stop), sortedAttempts(reply.Cancel)
	return reply, nil
}

func sortedAttempts(as []Attempt) []Attempt {
	out := append([]Attempt{}, as...)
	slices.SortFunc(out, func(a, b Attempt) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.N, b.N)) })
	return out
}

func (m *model) submit(s Submission) Placement {
	if j := m.jobs[s.JobID]; j != nil {
		return Placement{Assigned: true, Repeated: true, Node: j.node, Attempt: 1, Used: -1}
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
		m.jobs[s.JobID] = &modelJob{
			JobStatus: freeslot.JobStatus{
				ID: s.JobID, Tenant: s.Tenant, Service: s.Job.Service, State: freeslot.StateRunning, Node: id, Attempt: 1, Slots: slots,
			},
			node: id, epoch: n.epoch, slots: slots, replyTo: s.ReplyTo,
		}
		m.order = append(m.order, s.JobID)
		n.stream = append(n.stream, s.JobID)
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
	case j == nil || comp.Attempt.N != 1 || comp.Epoch != j.epoch:
		return CompletedStale
	case j.State.Terminal():
		// Whoever asks: the epoch was given this attempt, and it has ended.
		return CompletedBefore
	case comp.Node != j.node:
		return CompletedStale
	}
	_, before := m.owns(j.node)
	m.end(j, comp.State, comp.Result, comp.Error)
	_, after := m.owns(j.node)
	if limit := m.nodes[j.node].profile.MaxConcurrency; before >= limit && after < limit {
		m.announce(j.node)
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

func (m *model) cancel(tenant, job string) (freeslot.JobStatus, error) {
	j, err := m.find(tenant, job)
	if err != nil {
		return freeslot.JobStatus{}, err
	}
	if j.State == freeslot.StateRunning {
		j.State = freeslot.StateCancelling
		n := m.nodes[j.node]
		n.stream = append(n.stream, job+"1")
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
	return j.JobStatus, nil
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
	Replies   map[string][]string
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
		Pools: map[string][]string{"p": nil, "q": nil}, Replies: m.replies,
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
			nv.Owned[j.ID] = fmt.Sprintf("1:%s:%d:%v", j.epoch, j.slots, j.State == freeslot.StateCancelling)
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
		v.Jobs[id] = j.JobStatus
		if j.State.Terminal() {
			v.Finished = append(v.Finished, id)
		}
	}
	slices.Sort(v.Finished)
	return v
}
