package session

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// TestJobsThatWait: accepted has their positions, and assigned comes with their turn.
func TestJobsThatWait(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	d.slots = 2
	s := serve(t, Config{}, d)
	p := s.connect("")
	p.send(`{"type":"submit","id":"r1","jobs":[{"service":"hold","slots":2},{"service":"hold"},{"service":"echo","payload":1}]}`)
	p.expect(`{"type":"accepted","id":"r1","index":0,"job_id":"…a"}`)
	p.expect(`{"type":"assigned","job_id":"…a","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"accepted","id":"r1","index":1,"job_id":"…b","position":1}`)
	p.expect(`{"type":"accepted","id":"r1","index":2,"job_id":"…c","position":2}`)

	p.send(`{"type":"cancel","id":"r2","job_id":"…b"}`)
	const ended = `{"job_id":"…b","tenant":"acme","service":"hold","class":"…","state":"cancelled","node":"","attempt":0,"slots":1,"submitted_at_ms":1,"assigned_at_ms":0,"finished_at_ms":2}}`
	p.expect(`{"type":"result","job":` + ended)
	p.expect(`{"type":"status","id":"r2","job":` + ended)

	p.send(`{"type":"cancel","id":"r3","job_id":"…a"}`)
	p.expect(`{"type":"result","job":{"job_id":"…a","tenant":"acme","service":"hold","class":"…","state":"cancelled","node":"node-1","attempt":1,"slots":2,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	p.expect(`{"type":"assigned","job_id":"…c","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	p.expect(`{"type":"result","job":{"job_id":"…c","tenant":"acme","service":"echo","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"result":1,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
	p.expect(`{"type":"status","id":"r3","job":{"job_id":"…a","tenant":"acme","service":"hold","class":"…","state":"cancelling","node":"node-1","attempt":1,"slots":2,"submitted_at_ms":1,"assigned_at_ms":1}}`)
}

// TestNextAttempts: each attempt is reported to the session that waits for the job then.
func TestNextAttempts(t *testing.T) {
	t.Parallel()
	d := newFakeDispatcher()
	s := serve(t, Config{}, d)
	first, second := s.connect(""), s.connect("")
	second.vars = first.vars
	first.send(`{"type":"submit","id":"r1","job":{"service":"hold","priority":4}}`)
	first.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	first.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
	id, _ := first.vars["job"].(string)
	for _, attempt := range []string{"2", "3"} {
		d.requeue(id)
		d.runJob(id)
		first.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":` + attempt + `,"assigned_at_ms":1}`)
	}
	d.requeue(id)
	second.send(`{"type":"attach","id":"b1","job_id":"…job"}`)
	second.expect(`{"type":"status","id":"b1","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"waiting","node":"","attempt":3,"slots":1,
		"failures":3,"priority":4,"position":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
	first.expect(`{"type":"detached","job_id":"…job"}`)
	d.runJob(id)
	second.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":4,"assigned_at_ms":1}`)
	d.finish(id, freeslot.StateDead, nil)
	second.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"dead","node":"node-1","attempt":4,"slots":1,
		"failures":3,"priority":4,"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
}

// TestAssignmentRacesAttach: an attempt that begins before the status of an attach is sent comes
// after the status, and not at all if the status has it.
func TestAssignmentRacesAttach(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]int{"in the status": 1, "later": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDispatcher()
			s := serve(t, Config{}, d)
			p := s.connect("")
			p.send(`{"type":"submit","id":"r1","job":{"service":"hold"}}`)
			p.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
			p.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":1}`)
			d.attaching = func(id string) {
				d.jobs[id].sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-2", Attempt: attempt, AssignedAtMS: 9})
			}
			p.send(`{"type":"attach","id":"r2","job_id":"…job"}`)
			p.expect(`{"type":"status","id":"r2","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
			if attempt == 2 {
				p.expect(`{"type":"assigned","job_id":"…job","node":"node-2","attempt":2,"assigned_at_ms":9}`)
			}
			p.send(`{"type":"ping","id":"nothing more"}`)
			p.expect(`{"type":"pong","id":"nothing more"}`)
		})
	}
}
