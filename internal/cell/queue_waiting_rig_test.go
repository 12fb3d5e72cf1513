package cell

import (
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// enqueued has jobs wait, in one call, and returns what became of them.
func (r *rig) enqueued(subs ...Submission) []Placement {
	r.t.Helper()
	encoded := make([]encodedSubmission, len(subs))
	for i, s := range subs {
		var err error
		if encoded[i], err = encodeSubmission(s, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	out, err := r.Cell.enqueue(r.ctx(), encoded)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// waits has one job of the usual class wait, and returns its id.
func (r *rig) waits(replica string, change ...func(*Submission)) string {
	r.t.Helper()
	s := submission(replica)
	for _, f := range change {
		f(&s)
	}
	if p := r.enqueued(s)[0]; !p.Waiting {
		r.t.Fatalf("enqueue: %+v", p)
	}
	return s.JobID
}

func slots(n int) func(*Submission)      { return func(s *Submission) { s.Job.Slots = n } }
func priority(n int) func(*Submission)   { return func(s *Submission) { s.Job.Priority = n } }
func timeout(ms int64) func(*Submission) { return func(s *Submission) { s.Job.TimeoutMS = ms } }
func attempts(n int) func(*Submission)   { return func(s *Submission) { s.Job.MaxAttempts = n } }
func service(name string) func(*Submission) {
	return func(s *Submission) { s.Job.Service = name }
}

func of(tenant string, weight int) func(*Submission) {
	return func(s *Submission) { s.Tenant, s.Weight = tenant, weight }
}

// echo is the class of jobs of submission.
var echo = ClassOf(testJob()).ID

// line is who waits in a class, the next first.
func (r *rig) line(class string) []string {
	r.t.Helper()
	return r.strings("ZRANGE", r.l.Queue(class), "0", "-1")
}

// take has a node take jobs of the usual class, and returns how many.
func (r *rig) take(node string, classes ...string) int {
	r.t.Helper()
	if len(classes) == 0 {
		classes = []string{echo}
	}
	got, err := r.Take(r.ctx(), node, classes, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Jobs
}

// fails is the end of the job's present attempt by an error.
func (r *rig) fails(node string, epoch Epoch, job string, next Next) Completion {
	r.t.Helper()
	return Completion{
		Node: node, Epoch: epoch, Attempt: Attempt{Job: job, N: r.status(job).Attempt},
		State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "boom", Message: "no"}, Next: next,
	}
}

// complete1 ends an attempt that the node owns.
func (r *rig) complete1(c Completion) {
	r.t.Helper()
	if out, err := r.Complete(r.ctx(), c); err != nil || out != Completed {
		r.t.Fatalf("complete %+v: %v, %v", c, out, err)
	}
}

// pass lets the time pass that a job's pause or deadline takes.
func (r *rig) pass(job string) {
	r.t.Helper()
	past := r.nowMS() - 1
	if r.int("EXISTS", r.l.Due()) == 1 {
		r.do("ZADD", r.l.Due(), "XX", strconv.FormatInt(past, 10), job)
	}
	record := r.jobRecord(job)
	if r.field(r.l.Job(job), "state") != string(freeslot.StateRetryWait) && record.deadlineMS != 0 {
		record.deadlineMS = past
		r.do("HSET", r.l.Job(job), "job", record.String())
	}
}

// forgive lets the time pass in which a node gets no job that has just failed there.
func (r *rig) forgive(job string) {
	r.t.Helper()
	if part := strings.Split(r.field(r.l.Job(job), "fails"), " "); len(part) == 3 {
		r.do("HSET", r.l.Job(job), "fails", part[0]+" 1 "+part[2])
	}
}

// due does what is due and returns it.
func (r *rig) due(limit int) Due {
	r.t.Helper()
	d, err := r.Due(r.ctx(), limit)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// silence lets a node fall silent.
func (r *rig) silence(node string) {
	r.t.Helper()
	r.heard(node, r.nowMS()-r.HeartbeatLimit().Milliseconds()-1)
}

// told is what was sent to a replica since the stream was opened.
func (r *rig) told(replica string) []Reply {
	r.t.Helper()
	rs, err := r.Replies(r.ctx(), replica, "", 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range rs {
		rs[i].ID = ""
	}
	return rs[1:]
}

// cancelWaiting ends every job that waits, for tests that go on without.
func (r *rig) cancelWaiting() {
	r.t.Helper()
	for class := range r.hash(r.l.Waiting()) {
		for _, job := range r.line(class) {
			if _, err := r.Cancel(r.ctx(), "", job); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}
