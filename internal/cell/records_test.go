package cell

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// TestRecords: every key that the scripts write, its type and fields, and what the decoders read of
// jobs, slots and entries of streams. Processes of another release read them, too.
func TestRecords(t *testing.T) {
	t.Parallel()
	m := newMovers(t, redistest.Shared(t), 3)
	names := recordedJobs(m)
	var out strings.Builder
	for _, r := range m.rigs {
		for _, key := range r.keys() {
			part, id, _ := strings.Cut(strings.TrimPrefix(key, r.l.Prefix+":"), ":{"+r.l.Tag+"}")
			if key == r.l.Prefix+":"+part {
				continue // of another cell
			}
			head, rest, _ := strings.Cut(r.show(key), "\n")
			kind, until, _ := strings.Cut(head, " until ")
			if until != "-1" {
				kind += ", expires"
			}
			fmt.Fprintf(&out, "%s (%s)\n", strings.TrimPrefix(key, r.l.Prefix+":"), kind)
			for _, line := range r.recorded(part, strings.TrimPrefix(id, ":"), rest) {
				fmt.Fprintln(&out, "  "+line)
			}
		}
	}
	text := strings.NewReplacer(names...).Replace(out.String())
	for what, differs := range map[string]string{"<number>": `\b\d{16}\b`, "<ms>": `\b1\d{12}\b`, "generation=<hex>": `generation=[0-9a-f]{16}`} {
		text = regexp.MustCompile(differs).ReplaceAllString(text, what)
	}
	golden.Check(t, "records.txt", text)
}

// recorded is what a key holds: as it is read where there is a decoder.
func (r *rig) recorded(part, id, text string) (lines []string) {
	r.t.Helper()
	switch part {
	case "jobs":
		return r.recordedJob(id)
	case "slots":
		held, sum := r.slots(id)
		for job, o := range held {
			lines = append(lines, fmt.Sprintf("%s attempt=%d epoch=%s slots=%d stops=%v", job, o.attempt, o.epoch, o.slots, o.cancelled))
		}
		slices.Sort(lines)
		return append(lines, fmt.Sprint("sum ", sum))
	case "dispatch", "gateway", "replies":
		return r.recordedEntries(part, id)
	default:
		return strings.Split(text, "\n")
	}
}

// recordedJobs makes a job of each kind in the third cell, and what else a cell can hold. It returns
// the ids that differ from run to run, each with the name that stands for it.
func recordedJobs(m *movers) []string {
	m.t.Helper()
	r, ctx := m.rigs[2], m.ctx()
	ok := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	ok(r.OpenReplies(ctx, "r1"))
	epoch := r.register(freeslot.Node{
		ID: "n1", MaxConcurrency: 9, Pools: []string{"gpu"}, Services: []freeslot.Service{{Name: "echo", Version: "1.2.0"}},
		Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"en"}, Semantic: []string{"de", "en"}},
		Labels:    map[string]string{"zone": "eu"}, Features: map[string]bool{"f": true},
	})
	names := []string{epoch, "EPOCH", r.l.Prefix, "PREFIX"}
	submit := func(name string, nodes []string, change ...func(*Submission)) string {
		s := submission("r1", nodes...)
		s.JobID = fmt.Sprintf("2-01JD5Y8G6W9V0M5T2C3Q4R7X%02d", len(names)) // in this order in every listing
		for _, f := range change {
			f(&s)
		}
		if len(nodes) == 0 || len(s.Limits) > 0 || s.Job.IdempotencyKey != "" {
			r.enqueued(s)
		} else if p, err := r.Submit(ctx, s); err != nil || !p.Assigned {
			r.t.Fatalf("%s: %+v, %v; want no error, p.Assigned", name, p, err)
		}
		names = append(names, s.JobID[2:], name)
		return s.JobID
	}
	n1 := []string{"n1"}
	done := submit("done", n1, slots(2), priority(9), func(s *Submission) { s.Job.IdempotencyKey, s.Job.TraceParent = "key", "trace" })
	r.end("n1", epoch, done)
	dead := submit("dead", n1, attempts(1))
	r.complete1(r.fails("n1", epoch, dead, Retry))
	retry := submit("retry", n1)
	again := r.fails("n1", epoch, retry, Retry)
	again.RetryDelay = time.Hour
	r.complete1(again)
	runs := submit("runs", n1, timeout(time.Hour.Milliseconds()))
	_, err := r.Progress(ctx, "n1", epoch, []ProgressReport{{Attempt: Attempt{Job: runs, N: 1}, Seq: 1, Value: []byte(`{"done":5}`)}})
	ok(err)
	_, err = r.Attach(ctx, "acme", runs, "r2")
	ok(err)
	stops := submit("stops", n1, slots(3))
	_, err = r.Cancel(ctx, "acme", stops)
	ok(err)
	held := limitedBy(KeyLimit("acme", "key", 1), RunningLimit("acme", 5), WaitingLimit("acme", 9))
	submit("counts", n1, held)
	submit("held", n1, held)
	submit("waits", nil, service("tts"), priority(3), of("beta", 2))
	submit("for-node", nil, service("new"), forNode)
	_, err = r.Cancel(ctx, "acme", submit("cancelled", nil, service("tts")))
	ok(err)
	submit("later", nil, service("tts"), func(s *Submission) { s.Job.RunAtMS = r.nowMS() + time.Hour.Milliseconds() })
	for _, name := range []string{"moved", "moves"} {
		submit(name, nil, service("asr"))
		_, err = r.BeginMoves(ctx, ClassOf(&freeslot.Job{Service: "asr"}).ID, Target{Cell: 1, Slots: 9}, 0, 9)
		ok(err)
		if name == "moved" {
			m.driven(2, 1)
		}
	}
	_, err = r.Heartbeat(ctx, Heartbeat{Node: "n1", Epoch: epoch, Resources: []byte(`{"cpu":0.5}`)})
	ok(err)
	gone := r.register(testNode("gone", 1))
	_, err = r.Deregister(ctx, "gone", gone)
	ok(err)
	names = append(names, r.register(testNode("n2", 1)), "EPOCH2")
	ok(r.Drain(ctx, "n2"))
	ok(r.OpenGateway(ctx, "g1"))
	names = append(names, r.linked("n3", 9, "g1", "s1"), "EPOCH3")
	submit("linked", []string{"n3"})
	_, err = r.Cancel(ctx, "acme", submit("linked-stops", []string{"n3"}))
	ok(err)
	_, err = r.ConfigTold(ctx, 7, "g")
	ok(err)
	_, err = r.TakePermits(ctx, "acme", Rate{PerSecond: 1, Burst: 9}, 1)
	ok(err)
	return names
}

// recordedJob is the names of a record's fields, and the job as it is read.
func (r *rig) recordedJob(id string) []string {
	r.t.Helper()
	var fields []string
	for field := range r.hash(r.l.Job(id)) {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	job, tenant, err := r.Spec(r.ctx(), id)
	if err != nil {
		job = nil // a record that only sends on has none
	}
	return []string{"fields " + strings.Join(fields, " "), "status " + asJSON(r.t, r.status(id)), "spec of " + tenant + " " + asJSON(r.t, job)}
}

// recordedEntries is the names of each entry's fields, and what is read of them all.
func (r *rig) recordedEntries(kind, id string) (lines []string) {
	r.t.Helper()
	key := r.l.key(kind, id)
	for _, entry := range r.stream(key) {
		var fields []string
		for _, f := range entry.FieldValues {
			fields = append(fields, f.Field)
		}
		lines = append(lines, "fields "+strings.Join(fields, " "))
	}
	if kind == "replies" {
		for _, e := range r.told("r1") {
			lines = append(lines, fmt.Sprintf("used=%d partial=%v assigned=%v requeued=%v class=%q detached=%v progress=%s status=%s",
				e.Used, e.Partial, e.Assigned, e.Requeued, e.Class, e.Detached, asJSON(r.t, e.Progress), asJSON(r.t, e.Status)))
		}
		return lines
	}
	if kind == "gateway" {
		for _, d := range r.gateway(id) {
			lines = append(lines, fmt.Sprintf("%s attempt=%d cancel=%v tenant=%q node=%s session=%s job=%s",
				d.Attempt.Job, d.Attempt.N, d.Cancel, d.Tenant, d.Node, d.Session, asJSON(r.t, d.Job)))
		}
		return lines
	}
	found, err := r.Dispatches(r.ctx(), id, "", 0, 99)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range found {
		lines = append(lines, fmt.Sprintf("%s attempt=%d cancel=%v tenant=%q job=%s", d.Attempt.Job, d.Attempt.N, d.Cancel, d.Tenant, asJSON(r.t, d.Job)))
	}
	return lines
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
