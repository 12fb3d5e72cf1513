package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestSubmit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 3))
		hear := r.listen()
		s := submission("r1", "n1")
		s.Job = &freeslot.Job{
			Service: "tts", Payload: json.RawMessage(`{"text":"é \u0000 <&>"}`), Slots: 2, TraceParent: "00-1-2-01",
			Requirement: freeslot.Requirement{Pool: "gpu", Labels: map[string]string{"zone": "eu"}},
		}
		before := r.nowMS()
		p, err := r.Submit(r.ctx(), s)
		if err != nil {
			t.Fatal(err)
		}
		if p.AssignedAtMS < before || p.AssignedAtMS > r.nowMS() {
			t.Errorf("assigned at %d", p.AssignedAtMS)
		}
		want := Placement{Assigned: true, Node: "n1", Attempt: 1, AssignedAtMS: p.AssignedAtMS, Used: 2}
		if d := cmp.Diff(want, p); d != "" {
			t.Errorf("placement (-want +got):\n%s", d)
		}
		spec, _ := json.Marshal(s.Job)
		class := ClassOf(s.Job)
		record := map[string]string{
			"state": "running", "run": "1 n1 " + epoch + " " + strconv.FormatInt(p.AssignedAtMS, 10), "reply_to": "r1", "spec": string(spec),
		}
		stored := r.hash(r.l.Job(s.JobID))
		delete(stored, "job")
		if d := cmp.Diff(record, stored); d != "" {
			t.Errorf("record (-want +got):\n%s", d)
		}
		if got, want := r.jobRecord(s.JobID), (jobRecord{
			tenant: "acme", slots: 2, submittedMS: p.AssignedAtMS, retentionMS: DefaultRetention.Milliseconds(),
			class: class.ID, attempts: 3, definition: class.Definition,
		}); got != want {
			t.Errorf("field job is %+v, want %+v", got, want)
		}
		if got := r.hash(r.l.Slots("n1")); !cmp.Equal(got, map[string]string{s.JobID: "1:" + epoch + ":2", "sum": "2"}) {
			t.Errorf("slots %v", got)
		}
		entries := r.stream(r.l.Dispatch("n1"))
		if len(entries) != 1 || asText(entries[0].FieldValues) != "j="+s.JobID+" 1 acme|s="+string(spec) {
			t.Errorf("dispatch stream %v", entries)
		}
		if got := hear.drain(); len(got) != 0 || r.revision() != 1 {
			t.Errorf("a node with a free slot was announced: %v", got)
		}
		one := submission("", "n1")
		if p, err := r.Submit(r.ctx(), one); err != nil || p.Used != 3 {
			t.Fatalf("last slot: %+v, %v", p, err)
		}
		at := r.status(one.JobID).AssignedAtMS
		full := []events.Event{{
			Kind: events.SlotFull, Revision: 2, AtMS: at, Node: "n1", Epoch: epoch,
			Status: freeslot.StatusOnline, MaxConcurrency: 3, Used: 3,
		}}
		if d := cmp.Diff(full, hear.drain()); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		r.sound()
	})
}

// TestSubmitRefused has one candidate for each way to be refused, and shows that
// the first that fits wins and that a refused job leaves no trace.
func TestSubmitRefused(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("full", 4))
		r.place("", 4, "full")
		r.register(testNode("narrow", 4))
		r.place("", 3, "narrow")
		draining := r.register(testNode("draining", 4))
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "draining", Epoch: draining, Status: freeslot.StatusDraining}); err != nil {
			t.Fatal(err)
		}
		r.register(testNode("silent", 4))
		r.heard("silent", r.nowMS()-r.HeartbeatLimit().Milliseconds()-1)
		r.register(testNode("unheard", 4))
		r.do("HSET", r.l.Node("unheard"), "registered_at_ms", strconv.FormatInt(r.nowMS()-r.HeartbeatLimit().Milliseconds()-1, 10))
		gone := r.register(testNode("gone", 4))
		if _, err := r.Deregister(r.ctx(), "gone", gone); err != nil {
			t.Fatal(err)
		}
		s := submission("", "full", "narrow", "draining", "silent", "unheard", "gone", "never", "full")
		s.Job.Slots = 2
		var p Placement
		r.unchanged("a refused submit", func() {
			var err error
			if p, err = r.Submit(r.ctx(), s); err != nil {
				t.Fatal(err)
			}
		}, nil)
		want := Placement{Refusals: []Refusal{
			{Node: "full", Reason: RefusedFull, Used: 4, MaxConcurrency: 4},
			{Node: "narrow", Reason: RefusedFull, Used: 3, MaxConcurrency: 4},
			{Node: "draining", Reason: RefusedDraining, MaxConcurrency: 4},
			{Node: "silent", Reason: RefusedSilent, MaxConcurrency: 4},
			{Node: "unheard", Reason: RefusedSilent, MaxConcurrency: 4},
			{Node: "gone", Reason: RefusedGone},
			{Node: "never", Reason: RefusedGone},
			{Node: "full", Reason: RefusedFull, Used: 4, MaxConcurrency: 4},
		}}
		if d := cmp.Diff(want, p); d != "" {
			t.Errorf("placement (-want +got):\n%s", d)
		}
		s.Job.Slots = 1
		s.JobID = NewJobID(0)
		p, err := r.Submit(r.ctx(), s)
		p.AssignedAtMS = 0
		want = Placement{Assigned: true, Node: "narrow", Attempt: 1, Used: 4, Refusals: want.Refusals[:1]}
		if d := cmp.Diff(want, p); err != nil || d != "" {
			t.Errorf("the second candidate fits: %v (-want +got):\n%s", err, d)
		}
	})
}

// TestSubmitRepeated: the record answers, whatever has become of the job.
func TestSubmitRepeated(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		r.register(testNode("n2", 1))
		s := submission("r1", "n1")
		first, err := r.Submit(r.ctx(), s)
		if err != nil {
			t.Fatal(err)
		}
		s.Candidates = []string{"n2", "n1"}
		want := Placement{Assigned: true, Repeated: true, Node: "n1", Attempt: 1, AssignedAtMS: first.AssignedAtMS, Used: -1}
		again := func(what string) {
			t.Helper()
			r.unchanged("a repeated submit of "+what, func() {
				p, err := r.Submit(r.ctx(), s)
				if d := cmp.Diff(want, p); err != nil || d != "" {
					t.Errorf("%s: %v (-want +got):\n%s", what, err, d)
				}
			}, nil)
		}
		again("a running job")
		if _, err := r.Cancel(r.ctx(), "", s.JobID); err != nil {
			t.Fatal(err)
		}
		again("a cancelling job")
		r.end("n1", epoch, s.JobID)
		again("a finished job")
	})
}

// TestSubmitBatch: items of one call see each other, in order.
func TestSubmitBatch(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 3))
		r.register(testNode("n2", 1))
		hear := r.listen()
		twice := submission("", "n1")
		subs := []Submission{twice, submission("", "n1", "n2"), twice, submission("", "n1"), submission("", "n1", "n2"), submission("", "n2", "n1")}
		got, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i].AssignedAtMS == 0 && got[i].Assigned {
				t.Errorf("item %d has no time", i)
			}
			got[i].AssignedAtMS = 0
		}
		want := []Placement{
			{Assigned: true, Node: "n1", Attempt: 1, Used: 1},
			{Assigned: true, Node: "n1", Attempt: 1, Used: 2},
			{Assigned: true, Repeated: true, Node: "n1", Attempt: 1, Used: -1},
			{Assigned: true, Node: "n1", Attempt: 1, Used: 3},
			{Assigned: true, Node: "n2", Attempt: 1, Used: 1, Refusals: []Refusal{
				{Node: "n1", Reason: RefusedFull, Used: 3, MaxConcurrency: 3},
			}},
			{Refusals: []Refusal{
				{Node: "n2", Reason: RefusedFull, Used: 1, MaxConcurrency: 1},
				{Node: "n1", Reason: RefusedFull, Used: 3, MaxConcurrency: 3},
			}},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("placements (-want +got):\n%s", d)
		}
		heard := hear.drain()
		if len(heard) != 2 || heard[0].Kind != events.SlotFull || heard[0].Node != "n1" || heard[1].Node != "n2" {
			t.Errorf("events %+v", heard)
		}
		r.sound()
	})
}

func encoded(t *testing.T, subs ...Submission) []encodedSubmission {
	t.Helper()
	out := make([]encodedSubmission, len(subs))
	for i, s := range subs {
		var err error
		if out[i], err = encodeSubmission(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestSubmitMalformed: the script validates all items before the first write.
func TestSubmitMalformed(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 9))
		replaced := func(fromEnd int, with string) func(args []string) []string {
			return func(args []string) []string {
				args[len(args)-fromEnd] = with
				return args
			}
		}
		const kind, node, end = 4, 2, 1 // of the second item, from the end
		const slots = 2*4 + 7           // of its kind
		for name, wrong := range map[string]func(args []string) []string{
			"right":         func(args []string) []string { return args },
			"slots 0":       replaced(slots, "0"),
			"slots 1.5":     replaced(slots, "1.5"),
			"slots x":       replaced(slots, "x"),
			"kind 0":        replaced(kind, "0"),
			"kind 3 of 2":   replaced(kind, "3"),
			"no candidates": replaced(node, ""),
			"one too many":  replaced(end, "1"),
			"node 0":        replaced(node, "0"),
			"node 2 of 1":   replaced(node, "2"),
			"end missing":   func(args []string) []string { return args[:len(args)-1] },
		} {
			call := newSubmitCall(r.l, 1)
			second := submission("", "n1")
			second.Job.Slots = 2
			for _, s := range encoded(t, submission("", "n1"), second) {
				call.add(&s)
			}
			keys, args := call.encode(Config{HeartbeatLimit: time.Minute})
			args = wrong(args)
			if name == "right" {
				if err := r.runner.Call(r.ctx(), r.scripts["submit"], keys, args).Error(); err != nil {
					t.Error(err)
				}
				continue
			}
			r.unchanged(name, func() {
				if err := r.runner.Call(r.ctx(), r.scripts["submit"], keys, args).Error(); err == nil || !strings.Contains(err.Error(), "item 2") {
					t.Errorf(`%s: %v; want an error, strings.Contains(err.Error(), "item 2")`, name, err)
				}
			}, nil)
		}
	})
}

// TestSubmitWide: a call with as many nodes as it can name.
func TestSubmitWide(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", batchItems))
		subs := make([]Submission, batchItems)
		for i := range subs {
			var candidates []string
			for c := range MaxCandidates - 1 {
				candidates = append(candidates, fmt.Sprintf("gone-%d-%d", i, c))
			}
			subs[i] = submission("", append(candidates, "n1")...)
		}
		got, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range got {
			if !p.Assigned || p.Node != "n1" || p.Used != i+1 || len(p.Refusals) != MaxCandidates-1 {
				t.Fatalf("item %d: %+v", i, p)
			}
			for c, refusal := range p.Refusals {
				if refusal != (Refusal{Node: subs[i].Candidates[c], Reason: RefusedGone}) {
					t.Errorf("item %d: %+v", i, refusal)
				}
			}
		}
		r.sound()
	})
}

// TestSubmitKinds: what each job of a call states is its own.
func TestSubmitKinds(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", freeslot.MaxConcurrencyLimit))
		var subs []Submission
		for i := range 16 {
			s := submission([]string{"", "r1"}[i&1], "n1")
			s.Tenant = []string{"acme", "umbrella"}[i>>1&1]
			s.Job.Service = []string{"asr", "a service of \x00 odd  name "}[i>>2&1]
			s.Job.Slots = []int{1, 300}[i>>3&1]
			subs = append(subs, s)
		}
		got, err := r.Cell.submit(r.ctx(), encoded(t, append(subs, subs...)...))
		if err != nil {
			t.Fatal(err)
		}
		dispatched, err := r.Dispatches(r.ctx(), "n1", "", time.Second, len(subs)+1)
		if err != nil || len(dispatched) != len(subs) {
			t.Fatalf("%d dispatches, %v", len(dispatched), err)
		}
		held, _ := r.slots("n1")
		for i, s := range subs {
			if !got[i].Assigned || got[i].Repeated || !got[len(subs)+i].Repeated || got[len(subs)+i].Node != "n1" {
				t.Errorf("%+v, then %+v", got[i], got[len(subs)+i])
			}
			status, err := r.Job(r.ctx(), "", s.JobID)
			if err != nil || status.Tenant != s.Tenant || status.Service != s.Job.Service || status.Slots != s.Job.SlotCount() {
				t.Errorf("%+v, %v; want no error, status.Tenant == %v, status.Service == %v, status.Slots == s.Job.SlotCount()", status, err, s.Tenant, s.Job.Service)
			}
			if got := r.field(r.l.Job(s.JobID), "reply_to"); got != s.ReplyTo {
				t.Errorf("reply_to %q, expected %q", got, s.ReplyTo)
			}
			if d := dispatched[i]; d.Attempt.Job != s.JobID || d.Tenant != s.Tenant || !cmp.Equal(d.Job, s.Job) {
				t.Errorf("%+v; want d.Attempt.Job == %v, d.Tenant == %v, cmp.Equal(d.Job, s.Job)", d, s.JobID, s.Tenant)
			}
			if _, ok := held[s.JobID]; !ok {
				t.Errorf("%s is not held", s.JobID)
			}
		}
		r.sound()
	})
}

// TestSubmitLargeSpec: a large spec is not put on the stream; Spec reads it.
func TestSubmitLargeSpec(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 2))
		small, large := submission("", "n1"), submission("", "n1")
		small.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", inlineSpec-100) + `"`)
		large.Job.Payload = json.RawMessage(`"` + strings.Repeat("x", inlineSpec) + `"`)
		for _, s := range []Submission{small, large} {
			if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
				t.Fatalf("%+v, %v, expected assigned", p, err)
			}
			job, tenant, err := r.Spec(r.ctx(), s.JobID)
			if err != nil || tenant != "acme" || !cmp.Equal(job, s.Job) {
				t.Errorf("spec %+v of %s, %v", job, tenant, err)
			}
		}
		ds, err := r.Dispatches(r.ctx(), "n1", "", time.Second, 10)
		if err != nil || len(ds) != 2 || !cmp.Equal(ds[0].Job, small.Job) || ds[1].Job != nil || ds[1].Tenant != "acme" {
			t.Errorf("dispatches %+v, %v", ds, err)
		}
	})
}

// TestSubmitBadItem: one item that cannot be sent takes nobody else with it.
func TestSubmitBadItem(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 9))
		bad := map[string]func(*Submission){
			"payload":       func(s *Submission) { s.Job.Payload = json.RawMessage(`{`) },
			"no job":        func(s *Submission) { s.Job = nil },
			"no candidates": func(s *Submission) { s.Candidates = nil },
			"candidates":    func(s *Submission) { s.Candidates = slices.Repeat([]string{"n1"}, MaxCandidates+1) },
			"slots":         func(s *Submission) { s.Job.Slots = -1 },
		}
		for name, spoil := range bad {
			subs := []Submission{submission("", "n1"), submission("", "n1"), submission("", "n1")}
			spoil(&subs[1])
			got := r.SubmitAll(r.ctx(), subs)
			for i, g := range got {
				if i == 1 {
					if freeslot.CodeOf(g.Err) != freeslot.CodeInvalidArgument || r.exists(r.l.Job(subs[i].JobID)) {
						t.Errorf("%s: %+v; want freeslot.CodeOf(g.Err) == freeslot.CodeInvalidArgument, not r.exists(r.l.Job(subs[i].JobID))", name, g)
					}
				} else if g.Err != nil || !g.Placement.Assigned {
					t.Errorf("%s: neighbour %+v", name, g)
				} else {
					r.end("n1", r.field(r.l.Node("n1"), "epoch"), subs[i].JobID)
				}
			}
		}
		r.sound()
	})
}

// TestNotStarted: nothing would ever take the item up.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	c, err := New(Config{Layout: Layout{Prefix: redis.Prefix(t)}}, redis.Client(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := func(when string) {
		t.Helper()
		if _, err := c.Submit(ctx, submission("", "n1")); !errors.Is(err, ErrStopped) {
			t.Errorf("%s: submit: %v", when, err)
		}
		if _, err := c.Complete(ctx, succeed("n1", "e1", NewJobID(0))); !errors.Is(err, ErrStopped) {
			t.Errorf("%s: complete: %v", when, err)
		}
		if got := c.SubmitAll(ctx, []Submission{submission("", "n1")}); !errors.Is(got[0].Err, ErrStopped) {
			t.Errorf("%s: submit all: %v", when, got[0].Err)
		}
	}
	refused("before Start")
	for range 2 {
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	refused("after Stop")
	if err := c.Start(ctx); err != nil {
		t.Error(err)
	}
	refused("after Start of a stopped cell")
}
