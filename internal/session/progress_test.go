package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// report makes the job's handler report progress.
func (d *fakeDispatcher) report(id string, p freeslot.Progress) {
	d.mu.Lock()
	job := d.jobs[id]
	job.status.Progress = &p
	sink := job.sink
	d.mu.Unlock()
	if sink != nil {
		sink.Progress(id, p)
	}
}

func progressOf(seq int64, value string) freeslot.Progress {
	return freeslot.Progress{Attempt: 1, Seq: seq, AtMS: 5, Value: json.RawMessage(value)}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	first, second := s.connect(""), s.connect("?frames=batch")
	second.vars = first.vars
	first.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
	first.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	first.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	id, _ := first.vars["job"].(string)
	d.report(id, progressOf(1, `{"done":1}`))
	first.expect(`{"type":"progress","job_id":"…job","attempt":1,"seq":1,"at_ms":5,"value":{"done":1}}`)

	// News that arrives within an attach comes after its status, and only if it is new.
	seq := int64(1)
	d.attaching = func(id string) { seq++; d.report(id, progressOf(seq, "2")) }
	second.send(`{"type":"attach","id":"b1","job_id":"…job"}`)
	second.expect(`{"type":"status","id":"b1","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,
		"progress":{"attempt":1,"seq":1,"at_ms":5,"value":{"done":1}},"submitted_at_ms":1,"assigned_at_ms":1}}`)
	second.expect(`{"type":"progress","job_id":"…job","attempt":1,"seq":2,"at_ms":5,"value":2}`)
	first.expect(`{"type":"detached","job_id":"…job"}`)
	d.report(id, progressOf(9, "null"))
	second.expect(`{"type":"progress","job_id":"…job","attempt":1,"seq":9,"at_ms":5,"value":null}`)
	d.finish(id, freeslot.StateDead, nil)
	second.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"dead","node":"node-1","attempt":1,"slots":1,
		"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	d.report(id, progressOf(10, "1")) // of a job that the session no longer knows
	second.send(`{"type":"ping","id":"b2"}`)
	second.expect(`{"type":"pong","id":"b2"}`)
	if sent := s.metric("freeslot_session_progress_total", "sent"); sent != 3 {
		t.Errorf("%v sent", sent)
	}
}

// TestProgressOfASlowClient: while a client does not read, progress takes no room from results and
// does not end the session. Then the client gets all results, and only the latest progress of each
// job.
func TestProgressOfASlowClient(t *testing.T) {
	t.Parallel()
	const jobs = 20
	o := &outbox{}
	o.init(3*jobs, 10_000)
	long := strings.Repeat("x", freeslot.MaxProgressBytes)
	replaced := 0
	for seq := range 1000 {
		for job := range jobs {
			if o.putProgress(fmt.Sprint(job), []byte(fmt.Sprintf("progress %d %d %s", job, seq, long))) == progressReplaced {
				replaced++
			}
		}
	}
	if replaced != 999*jobs {
		t.Errorf("%d replaced", replaced)
	}
	for job := range jobs / 2 {
		o.dropProgress(fmt.Sprint(job))
		if !o.put(func(dst []byte) []byte { return append(dst, fmt.Sprintf("result %d", job)...) }) {
			t.Fatal("the client is cut off for its progress")
		}
	}
	got := drainOutbox(t, o)
	for i, message := range got {
		switch kind, rest, _ := strings.Cut(message, " "); {
		case i < jobs/2 && message != fmt.Sprintf("result %d", i):
			t.Errorf("message %d is %.20s, expected the results first", i, message)
		case i >= jobs/2 && (kind != "progress" || !strings.HasPrefix(rest, fmt.Sprintf("%d 999 ", i))):
			t.Errorf("message %d is %.20s, expected the latest of job %d", i, message, i)
		}
	}
	if len(got) != jobs || o.messages != 0 || o.bytes != 0 || o.progress.bytes != 0 || o.progress.len() != 0 {
		t.Errorf("%d messages; %d and %d bytes counted, %d of progress", len(got), o.messages, o.bytes, o.progress.bytes)
	}
}

// drainOutbox is the writer: it takes all that is there.
func drainOutbox(t fataler, o *outbox) (got []string) {
	var used chunk
	for o.queue.len() > 0 || o.progress.len() > 0 {
		full, by := o.take(used)
		if by != nil {
			t.Fatalf("order %+v", by)
		}
		for frame, size := range full.each {
			got = append(got, string(frame))
			if size.messages+size.progress != 1 {
				t.Fatalf("%s counts as %+v", frame, size)
			}
			o.written(size.messages, size.bytes)
		}
		used = full
	}
	return got
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// TestProgressTwin compares the queue of progress with a list of the latest of each job.
func TestProgressTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &outbox{}
		o.init(1000, 1<<20)
		batch := rapid.Bool().Draw(t, "batch")
		latest, ended := map[string]string{}, map[string]int{}
		var order, want, got []string
		forget := func(job string) {
			delete(latest, job)
			order = slices.DeleteFunc(order, func(other string) bool { return other == job })
		}
		for i := range rapid.IntRange(1, 120).Draw(t, "steps") {
			slot := fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "job"))
			job := fmt.Sprint(slot, ".", ended[slot]) // a job that has ended has no progress any more
			switch rapid.SampledFrom([]string{"report", "report", "report", "end", "take"}).Draw(t, "step") {
			case "report":
				message := fmt.Sprintf(`"p%s-%d"`, job, i)
				o.putProgress(job, []byte(message))
				if _, waits := latest[job]; !waits {
					order = append(order, job)
				}
				latest[job] = message
			case "end":
				message := fmt.Sprintf(`"r%s-%d"`, job, i)
				o.dropProgress(job)
				o.put(func(dst []byte) []byte { return append(dst, message...) })
				forget(job)
				ended[slot]++
				want = append(want, message)
			case "take":
				if o.queue.len() == 0 && o.progress.len() == 0 {
					continue
				}
				for _, job := range order[:min(len(order), progressTurn)] {
					want = append(want, latest[job])
				}
				for _, job := range slices.Clone(order[:min(len(order), progressTurn)]) {
					forget(job)
				}
				full, _ := o.take(chunk{})
				frames := full.each
				if batch {
					frames = full.arrays(30)
				}
				for frame, size := range frames {
					for _, message := range bytes.Split(bytes.Trim(frame, "[]"), []byte(",")) {
						got = append(got, string(message))
					}
					o.written(size.messages, size.bytes)
				}
				if d := strings.Join(got, " "); d != strings.Join(want, " ") {
					t.Fatalf("got  %s\nwant %s", d, strings.Join(want, " "))
				}
				if o.messages != 0 || o.bytes != 0 {
					t.Fatalf("%d messages and %d bytes are left", o.messages, o.bytes)
				}
			}
			if n := o.progress.len(); n != len(latest) {
				t.Fatalf("progress of %d jobs is queued, not of %d", n, len(latest))
			}
		}
	})
}

// TestProgressIsBounded: what does not fit is dropped, and the former value stays.
func TestProgressIsBounded(t *testing.T) {
	t.Parallel()
	o := &outbox{}
	o.init(10, 10)
	message := make([]byte, progressBytes/4)
	for i := range 4 {
		if out := o.putProgress(fmt.Sprint(i), message); out != progressQueued {
			t.Fatalf("%d: %v", i, out)
		}
	}
	if o.putProgress("4", []byte("x")) != progressDropped || o.putProgress("0", append(message, 'x')) != progressDropped || o.putProgress("0", message) != progressReplaced {
		t.Error("the bound does not hold")
	}
	o.end(order{flush: true})
	if o.putProgress("0", message) != progressDropped || o.progress.len() != 0 {
		t.Error("a session that ends takes progress")
	}
}
