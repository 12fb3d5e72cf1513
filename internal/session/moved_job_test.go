package session

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/socket"
)

// TestAttachByTheIDOfAnotherCell: a node knows a moved job by another id. A client that attaches by
// that id gets the news, all under the id that clients know.
func TestAttachByTheIDOfAnotherCell(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]bool{"another session": false, "the session that waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDispatcher()
			s := serve(t, Config{}, d)
			p := s.connect("")
			id := hold(p, "job")
			moved := "7" + strings.TrimPrefix(id, "0")
			d.alias = map[string]string{moved: id}
			d.attaching = func(id string) {
				d.jobs[id].sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-2", Attempt: 2, AssignedAtMS: 9})
			}
			q := p
			if !same {
				q = s.connect("")
				q.vars = p.vars
			}
			q.send(`{"type":"attach","id":"r2","job_id":"` + moved + `"}`)
			q.expect(`{"type":"status","id":"r2","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":1,"assigned_at_ms":1}}`)
			q.expect(`{"type":"assigned","job_id":"…job","node":"node-2","attempt":2,"assigned_at_ms":9}`)
			d.report(id, freeslot.Progress{Attempt: 2, Seq: 1, AtMS: 5})
			q.expect(`{"type":"progress","job_id":"…job","attempt":2,"seq":1,"at_ms":5,"value":null}`)
			d.finish(id, freeslot.StateDead, nil)
			q.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"hold","class":"…","state":"dead","node":"node-1","attempt":1,"slots":1,
				"submitted_at_ms":1,"assigned_at_ms":1,"finished_at_ms":2}}`)
		})
	}
}

// TestProgressOfAnEarlierAttempt: it does not come after a later attempt has begun.
func TestProgressOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	s := &session{handler: &Handler{metrics: newMetrics(nil)}, jobs: map[string]*attachment{"job": nil}, conn: socket.NewDetached(&socket.Config{QueueMessages: 10, QueueBytes: 10_000})}
	s.Progress("0-job", progressOf(1, "1"))
	s.Assigned(dispatch.Assignment{JobID: "0-job", Node: "node-2", Attempt: 2, AssignedAtMS: 9})
	if got := s.conn.Take(); len(got) != 1 || !strings.Contains(string(got[0]), `"assigned"`) {
		t.Errorf("sent %q, expected assigned alone", got)
	}
}
