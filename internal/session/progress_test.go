package session

import (
	"encoding/json"
	"testing"

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
		t.Errorf("%v messages of progress are sent, expected 3", sent)
	}
}
