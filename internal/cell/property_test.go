package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestModel compares random histories with a slow and obvious model: the answer of
// every call, and after each call everything that can be seen in Redis.
func TestModel(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		base := newRig(t, redis)
		ends, plain, histories := 0, 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			// In a cluster it is the same scripts that run, at thrice the cost.
			if histories++; base.l.Sharded && histories%4 > 0 {
				return
			}
			h := newHistory(rt, base)
			defer h.close()
			defer func() { ends, plain = ends+h.ends, plain+h.r.plainEnds() }()
			for range rapid.IntRange(0, 5).Draw(rt, "nodes") { // else few jobs run
				h.register(rt)
			}
			rt.Repeat(map[string]func(*rapid.T){
				"register":   h.register,
				"deregister": h.deregister,
				"heartbeat":  h.heartbeat,
				"submit":     h.submit,
				"submit all": h.submitAll,
				"resubmit":   h.resubmit,
				"complete":   h.complete,
				"end all":    h.endAll,
				"cancel":     h.cancel,
				"attach":     h.attach,
				"progress":   h.progress,
				"enqueue":    h.enqueue,
				"take":       h.take,
				"due":        h.due,
				"reap":       h.reap,
				"forgive":    h.forgive,
				"config":     h.configSeen,
				"":           h.check,
			})
		})
		if t.Logf("%d calls of complete.lua, %d by complete_plain.lua", ends, plain); plain == 0 || plain == ends {
			t.Error("complete.lua was not tried both ways")
		}
	})
}

// history is one run of the model beside a cell with keys of its own.
type history struct {
	r     *rig
	model *model
	// eager has every node that may take jobs do so after each call.
	eager bool
	ends  int // calls of complete.lua
}

// patientScripts returns the scripts without the bound of fill_node.lua on how long jobs pass one
// that needs more room. The model knows no time, and a history can last longer on a busy machine.
func patientScripts(set script.Set) script.Set {
	for name, s := range set {
		set[name] = script.New(name, strings.Replace(s.Text(false), "local PATIENCE = 10000 ", "local PATIENCE = 1e9 ", 1))
	}
	return set
}

func newHistory(rt *rapid.T, base *rig) *history {
	cfg := Config{Layout: base.l, CallTimeout: patience, HeartbeatLimit: time.Hour}
	cfg.Layout.Prefix = base.redis.Prefix(base.t)
	c, err := New(cfg, base.client, zap.NewNop(), nil)
	if err != nil {
		rt.Fatal(err)
	}
	c.scripts = patientScripts(countPlain(base.t))
	if err := c.Start(base.ctx()); err != nil {
		rt.Fatal(err)
	}
	h := &history{r: &rig{Cell: c, t: base.t, redis: base.redis, raw: base.raw, l: cfg.Layout}, model: newModel()}
	h.eager = rapid.Bool().Draw(rt, "eager")
	for _, replica := range modelReplicas {
		if err := c.OpenReplies(base.ctx(), replica); err != nil {
			rt.Fatal(err)
		}
		h.model.replies[replica] = []string{"open"}
	}
	for _, gateway := range modelGateways {
		if err := c.OpenGateway(base.ctx(), gateway); err != nil {
			rt.Fatal(err)
		}
		h.model.gateways[gateway] = nil
	}
	return h
}

func (h *history) close() {
	if err := h.r.Stop(context.Background()); err != nil {
		h.r.t.Error(err)
	}
}

func check[T any](rt *rapid.T, what string, want, got T, wantErr, err error) {
	rt.Helper()
	if !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
		rt.Fatalf("%s: error %v, want %v", what, err, wantErr)
	}
	if d := cmp.Diff(want, got); d != "" {
		rt.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

var (
	errNotFound   = &freeslot.Error{Code: freeslot.CodeNotFound}
	modelReplicas = []string{"r1", "r2"}
	modelGateways = []string{"g1", "g2"}
)

func drawNode(rt *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "node") }

func drawEpoch(rt *rapid.T) Epoch { return rapid.SampledFrom([]string{"e1", "e2"}).Draw(rt, "epoch") }

// drawJob mostly names a job that there is.
func (h *history) drawJob(rt *rapid.T) string {
	n := len(h.model.order)
	if i := rapid.IntRange(0, n+n/4).Draw(rt, "job"); i < n {
		return h.model.order[n-1-i]
	}
	return "0-00000000000000000000000000"
}

func (h *history) register(rt *rapid.T) {
	node := testNode(drawNode(rt), rapid.IntRange(1, 5).Draw(rt, "max"))
	node.Pools = rapid.SampledFrom([][]string{nil, {"p"}, {"q"}, {"p", "q"}}).Draw(rt, "pools")
	epoch := drawEpoch(rt)
	lost, _ := h.model.register(node, epoch)
	reg, err := h.r.Register(h.r.ctx(), node, epoch)
	h.r.do("PERSIST", h.r.l.Serves(node.ID)) // its mark: on a slow machine a history takes longer than that lives
	slices.Sort(reg.Lost)
	want := Registration{Revision: h.model.revision, Lost: lost, HeartbeatLimit: time.Hour}
	check(rt, "register", want, reg, nil, err)
}

func (h *history) deregister(rt *rapid.T) {
	node, epoch := drawNode(rt), drawEpoch(rt)
	want, wantErr := h.model.deregister(node, epoch)
	lost, err := h.r.Deregister(h.r.ctx(), node, epoch)
	slices.Sort(lost)
	check(rt, "deregister", want, lost, wantErr, err)
}

func (h *history) heartbeat(rt *rapid.T) {
	hb := Heartbeat{
		Node: drawNode(rt), Epoch: drawEpoch(rt),
		Status: rapid.SampledFrom([]freeslot.Status{freeslot.StatusOnline, freeslot.StatusOnline, freeslot.StatusDraining}).Draw(rt, "status"),
	}
	hb.Resources = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"cpu":1}`), json.RawMessage(`{"cpu":2}`)}).Draw(rt, "resources")
	for range rapid.IntRange(0, 4).Draw(rt, "named") {
		hb.Running = append(hb.Running, h.drawAttempt(rt))
	}
	read := 0
	if stream := h.r.stream(h.r.l.Dispatch(hb.Node)); len(stream) > 0 {
		read = rapid.IntRange(0, len(stream)).Draw(rt, "read")
		if read > 0 {
			hb.Read = stream[read-1].ID
			before := 0 // what these entries tell, which is what the model counts
			for _, e := range stream[:read-1] {
				for range parts(e.FieldValues) {
					before++
				}
			}
			read = before + 1
		}
	}
	link := Link{Connection: 1, Session: rapid.SampledFrom([]string{"s1", "s2"}).Draw(rt, "session"), Token: "t", Replica: "r1"}
	link.Stream = rapid.SampledFrom([]string{"", NodeStream, "g1", "g1", "g2", "gone"}).Draw(rt, "gateway")
	var got HeartbeatReply
	var err error
	if link.Stream == "" {
		got, err = h.r.Heartbeat(h.r.ctx(), hb)
	} else {
		load := h.r.l.Load(hb.Node)
		before := h.r.do("GET", load)
		h.r.do("DEL", load) // a direct agent of the same epoch may live, which is refused
		if got, err = h.r.HeartbeatLinked(h.r.ctx(), hb, link); err != nil {
			if text, missing := before.ToString(); missing == nil {
				h.r.do("SET", load, text)
			}
		}
		got.AtMS = 0
	}
	want, wantErr := h.model.heartbeat(hb, read, strings.Trim(link.Stream, NodeStream), link.Session)
	if err == nil {
		got.Start, got.Stop, got.Cancel = sortedAttempts(got.Start), sortedAttempts(got.Stop), sortedAttempts(got.Cancel)
	}
	check(rt, "heartbeat", want, got, wantErr, err)
}

func (h *history) draw(rt *rapid.T) Submission {
	s := submission(rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(rt, "reply to"))
	s.Job.Slots = rapid.IntRange(0, 3).Draw(rt, "slots")
	s.Tenant = rapid.SampledFrom([]string{"acme", "other"}).Draw(rt, "tenant")
	s.Weight = map[string]int{"acme": 0, "other": 3}[s.Tenant]
	s.Job.Service = rapid.SampledFrom([]string{"echo", "echo", "tts"}).Draw(rt, "service")
	s.Job.Priority = rapid.SampledFrom([]int{0, 0, 0, 9}).Draw(rt, "priority")
	s.Job.MaxAttempts = rapid.SampledFrom([]int{0, 1, 2}).Draw(rt, "attempts")
	s.Job.TimeoutMS = rapid.SampledFrom([]int64{0, 0, 10 * time.Hour.Milliseconds()}).Draw(rt, "timeout")
	for range rapid.IntRange(1, 3).Draw(rt, "candidates") {
		s.Candidates = append(s.Candidates, drawNode(rt))
	}
	return s
}

func (h *history) submit(rt *rapid.T) {
	s := h.draw(rt)
	want := h.model.submit(s)
	got, err := h.r.Submit(h.r.ctx(), s)
	got = bare(got)
	check(rt, "submit", want, got, nil, err)
}

func (h *history) submitAll(rt *rapid.T) {
	subs := make([]Submission, rapid.IntRange(2, 6).Draw(rt, "jobs"))
	want := make([]Placement, len(subs))
	for i := range subs {
		subs[i] = h.draw(rt)
		want[i] = h.model.submit(subs[i])
	}
	// One call: SubmitAll can spread jobs over two, whose order is open.
	got, err := h.r.Cell.submit(h.r.ctx(), encoded(h.r.t, subs...))
	if err != nil {
		rt.Fatal(err)
	}
	for i, p := range got {
		check(rt, "submit all", want[i], bare(p), nil, nil)
	}
}

// resubmit repeats a submission whose answer was lost, possibly long ago.
func (h *history) resubmit(rt *rapid.T) {
	s := h.draw(rt)
	if len(h.model.order) > 0 {
		s.JobID = rapid.SampledFrom(h.model.order).Draw(rt, "job")
		s.Job.Service = h.model.jobs[s.JobID].Service // it stays what it is
	}
	want := h.model.submit(s)
	got, err := h.r.Submit(h.r.ctx(), s)
	got = bare(got)
	check(rt, "resubmit", want, got, nil, err)
}

func (h *history) complete(rt *rapid.T) {
	comp := Completion{
		Node: drawNode(rt), Epoch: drawEpoch(rt),
		Attempt: h.drawAttempt(rt),
		State:   rapid.SampledFrom([]freeslot.State{freeslot.StateSucceeded, freeslot.StateFailed, freeslot.StateCancelled}).Draw(rt, "state"),
	}
	var running []Attempt
	for _, id := range h.model.order {
		if j := h.model.jobs[id]; j != nil && j.runs() {
			running = append(running, Attempt{id, j.Attempt})
		}
	}
	if len(running) > 0 && rapid.IntRange(0, 3).Draw(rt, "any job") < 3 {
		comp.Attempt = rapid.SampledFrom(running).Draw(rt, "runs")
	}
	if j := h.model.jobs[comp.Attempt.Job]; j != nil && j.node != "" && rapid.IntRange(0, 3).Draw(rt, "by the owner") > 0 {
		comp.Node, comp.Epoch = j.node, j.epoch
	}
	switch comp.State {
	case freeslot.StateSucceeded:
		comp.Result = fmt.Appendf(nil, "%d", rapid.IntRange(0, 9).Draw(rt, "result"))
	case freeslot.StateFailed:
		comp.Error = &freeslot.JobError{Code: "boom"}
		comp.Next = rapid.SampledFrom([]Next{Never, Retry, Retry, HandBack}).Draw(rt, "again")
		if comp.Next == Retry {
			comp.RetryDelay = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "pause")
		}
	default:
	}
	h.ends++
	want := h.model.complete(comp)
	got, err := h.r.Complete(h.r.ctx(), comp)
	check(rt, "complete", want, got, nil, err)
}

// endAll ends all jobs of a node in one call, while none waits that could begin between two of
// them.
func (h *history) endAll(rt *rapid.T) {
	node := drawNode(rt)
	var comps []Completion
	var want []CompletionOutcome
	for _, id := range h.model.order {
		switch j := h.model.jobs[id]; {
		case j == nil:
		case j.State == freeslot.StateWaiting:
			return
		case j.runs() && j.node == node:
			comp := succeed(node, j.epoch, id)
			comp.Attempt.N = j.Attempt
			comps = append(comps, comp)
		}
	}
	if len(comps) == 0 {
		return
	}
	for _, comp := range comps {
		want = append(want, h.model.complete(comp))
	}
	h.ends++
	got, err := h.r.Cell.complete(h.r.ctx(), comps)
	check(rt, "end all", want, got, nil, err)
}

func (h *history) cancel(rt *rapid.T) {
	job, tenant := h.drawJob(rt), rapid.SampledFrom([]string{"", "acme", "other"}).Draw(rt, "tenant")
	seen := Seen{
		Attempt: rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "attempt"),
		State:   rapid.SampledFrom([]freeslot.State{"", "", "", freeslot.StateWaiting, freeslot.StateRunning}).Draw(rt, "state"),
	}
	want, wantErr := h.model.cancel(tenant, job, seen)
	got, err := NewSet(h.r.Cell).CancelIf(h.r.ctx(), tenant, job, seen)
	check(rt, "cancel", want, timeless(rt, got), wantErr, err)
}

func (h *history) attach(rt *rapid.T) {
	job, tenant := h.drawJob(rt), rapid.SampledFrom([]string{"", "acme", "other"}).Draw(rt, "tenant")
	replica := rapid.SampledFrom(modelReplicas).Draw(rt, "replica")
	want, wantErr := h.model.attach(tenant, job, replica)
	got, err := h.r.Attach(h.r.ctx(), tenant, job, replica)
	check(rt, "attach", want, timeless(rt, got), wantErr, err)
}

// timeless takes the times out of a status, after a look at their order.
func timeless(rt *rapid.T, s freeslot.JobStatus) freeslot.JobStatus {
	if s.AssignedAtMS != 0 && s.SubmittedAtMS > s.AssignedAtMS || s.State.Terminal() && s.AssignedAtMS > s.FinishedAtMS || !s.State.Terminal() && s.FinishedAtMS != 0 {
		rt.Fatalf("times of %+v", s)
	}
	s.SubmittedAtMS, s.AssignedAtMS, s.FinishedAtMS, s.DeadlineMS, s.RunAtMS = 0, 0, 0, min(s.DeadlineMS, 1), 0
	if s.Progress != nil {
		s.Progress.AtMS = 0
	}
	s.Attempts = slices.Clone(s.Attempts)
	for i := range s.Attempts {
		if p := &s.Attempts[i]; p.BeganAtMS == 0 || p.BeganAtMS > p.EndedAtMS {
			rt.Fatalf("times of attempt %+v", *p)
		} else {
			p.BeganAtMS, p.EndedAtMS = 0, 0
		}
	}
	return s
}

// bare takes the times out of a placement.
func bare(p Placement) Placement {
	p.AssignedAtMS, p.SubmittedAtMS = 0, 0
	return p
}

// drawAttempt is mostly the present one.
func (h *history) drawAttempt(rt *rapid.T) Attempt {
	a := Attempt{Job: h.drawJob(rt), N: 1}
	if j := h.model.jobs[a.Job]; j != nil {
		a.N = j.Attempt
	}
	a.N = max(a.N+rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(rt, "attempt"), 0)
	return a
}

func (h *history) enqueue(rt *rapid.T) {
	subs := make([]Submission, rapid.IntRange(1, 5).Draw(rt, "jobs"))
	for i := range subs {
		subs[i] = h.draw(rt)
		subs[i].Candidates = subs[i].Candidates[:rapid.IntRange(0, len(subs[i].Candidates)).Draw(rt, "named")]
		if n := len(h.model.order); n > 0 && rapid.IntRange(0, 5).Draw(rt, "repeated") == 0 {
			id := rapid.SampledFrom(h.model.order).Draw(rt, "job")
			subs[i].JobID, subs[i].Job.Service = id, h.model.jobs[id].Service // it stays what it is
		}
	}
	want := h.model.enqueue(subs)
	for i, p := range h.r.enqueued(subs...) {
		check(rt, fmt.Sprint("enqueue ", i), want[i], bare(p), nil, nil)
	}
}

var modelClasses = []string{echo, ClassOf(&freeslot.Job{Service: "tts"}).ID}

func (h *history) take(rt *rapid.T) {
	node, config := drawNode(rt), rapid.SampledFrom([]uint64{1, 1, 2}).Draw(rt, "config")
	classes := rapid.SampledFrom([][]string{modelClasses, modelClasses[:1], modelClasses[1:], {modelClasses[1], modelClasses[1]}}).Draw(rt, "classes")
	want := h.model.takeAll(node, classes, config)
	got, err := h.r.Take(h.r.ctx(), node, classes, config)
	check(rt, "take", want, got, nil, err)
}

func (h *history) configSeen(rt *rapid.T) {
	h.model.servesVersion = rapid.Uint64Range(1, 2).Draw(rt, "config")
	if err := h.r.ConfigSeen(h.r.ctx(), h.model.servesVersion); err != nil {
		rt.Fatal(err)
	}
}

// due lets the time pass that a job's pause or deadline takes.
func (h *history) due(rt *rapid.T) {
	id := h.drawJob(rt)
	j := h.model.jobs[id]
	if j == nil {
		return
	}
	want := h.model.due(j)
	h.r.pass(id)
	got, err := h.r.Due(h.r.ctx(), 10)
	check(rt, "due", want, got, nil, err)
}

func (h *history) reap(rt *rapid.T) {
	node, epoch := drawNode(rt), drawEpoch(rt)
	n := h.model.nodes[node]
	silent := n != nil && n.epoch == epoch && rapid.Bool().Draw(rt, "silent")
	if silent {
		h.r.silence(node)
	}
	want := h.model.reap(node, epoch, silent)
	got, err := h.r.Reap(h.r.ctx(), node, epoch)
	slices.Sort(got.Jobs)
	check(rt, "reap", want, got, nil, err)
}

// forgive lets the time pass in which a node gets no job that has just failed there.
func (h *history) forgive(*rapid.T) {
	for _, j := range h.model.jobs {
		if j.avoid {
			j.avoid = false
			h.r.forgive(j.ID)
		}
	}
}

// check compares, and lets nodes take jobs where they do that after each call.
func (h *history) check(rt *rapid.T) {
	h.pin()
	h.compare(rt)
	if !h.eager {
		return
	}
	for begun := true; begun; { // a job that begins may have kept those behind it from nodes asked before
		begun = false
		for _, node := range []string{"a", "b", "c"} {
			want := h.model.takeAll(node, modelClasses, 1)
			got, err := h.r.Take(h.r.ctx(), node, modelClasses, 1)
			check(rt, "match", want, got, nil, err)
			begun = begun || got.Jobs > 0
		}
	}
	h.compare(rt)
	h.live(rt)
}

// pin keeps the moment in which a job has just failed from passing.
func (h *history) pin() {
	for _, j := range h.model.jobs {
		if j.avoid && !j.State.Terminal() {
			part := strings.Split(h.r.field(h.r.l.Job(j.ID), "fails"), " ")
			h.r.do("HSET", h.r.l.Job(j.ID), "fails", part[0]+" 9000000000000 "+part[2])
		}
	}
}

// live fails where a slot is free beside a job that waits and may have it.
func (h *history) live(rt *rapid.T) {
	for node, n := range h.model.nodes {
		_, used := h.r.slots(node)
		if n.status != freeslot.StatusOnline {
			continue
		}
		var heads []*modelJob
		large := -1 // the highest priority of the heads that need more room, which is left to them
		for _, class := range modelClasses {
			for _, id := range h.r.line(class) {
				j := h.model.jobs[id]
				if j.slots > n.profile.MaxConcurrency || j.avoid && j.node == node {
					continue
				}
				heads = append(heads, j)
				if used+j.slots > n.profile.MaxConcurrency {
					large = max(large, j.Priority)
				}
				break // nobody passes it
			}
		}
		for _, j := range heads {
			if used+j.slots <= n.profile.MaxConcurrency && j.Priority >= large {
				rt.Fatalf("job %s of %d slots waits, node %s has %d of %d in use", j.ID, j.slots, node, used, n.profile.MaxConcurrency)
			}
		}
	}
}

// lines reads the queues, and what nodes serve.
func (h *history) lines(v *view) {
	r := h.r
	v.Lines, v.Virtual, v.Serves = map[string][]string{}, map[string]int{}, map[string]string{}
	for _, class := range modelClasses {
		scores := r.scores(r.l.Queue(class))
		for _, job := range r.line(class) {
			v.Lines[class] = append(v.Lines[class], fmt.Sprint(job, " ", int(scores[job])%(1<<48)))
		}
		if len(scores) > 0 {
			v.Virtual[class], _ = strconv.Atoi(r.field(r.l.Fair(class), "v"))
		}
	}
	for _, node := range []string{"a", "b", "c"} {
		m := r.do("GET", r.l.Serves(node))
		if text, err := m.ToString(); err == nil {
			part := strings.Fields(text)
			slices.Sort(part[1:])
			version, _ := strconv.Atoi(part[0])
			v.Serves[node] = fmt.Sprint(version, part[1:])
		}
	}
}

// gateways reads the streams of all gateways that have one.
func (h *history) gateways(rt *rapid.T) map[string][]string {
	found := make(map[string][]string)
	for _, gateway := range append(modelGateways, "gone") {
		if !h.r.exists(h.r.l.Gateway(gateway)) {
			continue
		}
		found[gateway] = nil
		ds, err := h.r.GatewayDispatches(h.r.ctx(), gateway, "", 0, 1000)
		if err != nil {
			rt.Fatal(err)
		}
		for _, d := range ds {
			found[gateway] = append(found[gateway], fmt.Sprintf("%s %d %v %s %s", d.Attempt.Job, d.Attempt.N, d.Cancel, d.Node, d.Session))
		}
	}
	return found
}

// compare is everything that can be seen in Redis against the model.
func (h *history) compare(rt *rapid.T) {
	r := h.r
	got := view{
		Revision: r.revision(), Nodes: map[string]nodeView{}, Jobs: map[string]freeslot.JobStatus{}, Replies: map[string][]string{},
		Online: r.set(r.l.Online()), Finished: slices.Sorted(maps.Keys(r.scores(r.l.Finished()))),
		Pools: map[string][]string{"p": r.set(r.l.PoolMembers("p")), "q": r.set(r.l.PoolMembers("q"))},
	}
	got.Unsuccessful = r.unsuccessful()
	h.lines(&got)
	revisions := make(map[string]Revision)
	for member, score := range r.scores(r.l.Revisions()) {
		revisions[member] = Revision(score)
	}
	got.Revisions = revisions
	for _, node := range []string{"a", "b", "c"} {
		profile := r.hash(r.l.Node(node))
		held, sum := r.slots(node)
		v := nodeView{Epoch: profile["epoch"], Status: profile["status"], Max: profile["max_concurrency"], Sum: sum, Owned: map[string]string{}}
		for job, o := range held {
			v.Owned[job] = fmt.Sprintf("%d:%s:%d:%v", o.attempt, o.epoch, o.slots, o.cancelled)
		}
		for _, e := range r.stream(r.l.Dispatch(node)) {
			for one := range parts(e.FieldValues) {
				d, err := decodeDispatch(e.ID, one)
				if err != nil {
					h.r.t.Error(err)
				}
				v.Stream = append(v.Stream, fmt.Sprintf("%s %d %v", d.Attempt.Job, d.Attempt.N, d.Cancel))
			}
		}
		_, v.Figures = r.load(node)
		got.Nodes[node] = v
	}
	for _, id := range h.model.order {
		s, err := r.Job(r.ctx(), "", id)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			continue
		}
		if err != nil {
			rt.Fatal(err)
		}
		got.Jobs[s.ID] = timeless(rt, s)
	}
	for _, replica := range modelReplicas {
		rs, err := r.Replies(r.ctx(), replica, "", 0, 1000)
		if err != nil {
			rt.Fatal(err)
		}
		for _, reply := range rs {
			switch {
			case reply.Status.ID == "":
				got.Replies[replica] = append(got.Replies[replica], "open")
			case reply.Assigned:
				got.Replies[replica] = append(got.Replies[replica],
					fmt.Sprintf("%s assigned %s %d %d", reply.Status.ID, reply.Status.Node, reply.Status.Attempt, reply.Used))
			case reply.Requeued:
				got.Replies[replica] = append(got.Replies[replica], reply.Status.ID+" requeued")
			case reply.Progress != nil:
				got.Replies[replica] = append(got.Replies[replica], reply.Status.ID+" "+toldLine(reply.Progress))
			case reply.Detached:
				got.Replies[replica] = append(got.Replies[replica], reply.Status.ID+" detached")
			default:
				got.Replies[replica] = append(got.Replies[replica], reply.Status.ID+" "+string(reply.Status.State))
			}
		}
	}
	got.Gateways = h.gateways(rt)
	want := h.model.view()
	for _, v := range []view{want, got} {
		for _, lines := range v.Replies {
			slices.Sort(lines) // jobs that end together do so in any order
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		rt.Fatalf("Redis is not as the model (-model +redis):\n%s", d)
	}
}
