package dispatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// onTwoServers is a rig of two cells, each on a server of its own, and a replica whose jobs move
// soon. The replica reads only the records that a test makes it read.
func onTwoServers(t *testing.T) (r *rig, rep *replica, servers [2]*redistest.Server) {
	t.Helper()
	servers = [2]*redistest.Server{redistest.New(t), redistest.New(t)}
	r = newCells(t, 2, servers[0].Target, servers[1].Target)
	rep = r.replica("r1", moving, func(c *replicaConfig) { c.dispatch.RecheckInterval = time.Hour })
	return r, rep, servers
}

// pause makes a server answer no call until the end of the test.
func pause(t *testing.T, server *redistest.Server) {
	t.Helper()
	server.Pause()
	t.Cleanup(server.Resume)
}

// Jobs have moved, and the cell of their ids goes away. Their new cell still reports their ends,
// and the replies behind these.
func TestEndsOfMovedJobsWhileFirstCellIsAway(t *testing.T) {
	t.Parallel()
	const jobs = 3 * fetchLimit
	r, rep, servers := onTwoServers(t)
	old := r.agent(r.nodesIn(0, 1, 1)[0])
	waittest.Until(t, "the node", func() bool { return rep.cache.Size() == 1 })
	sink := newRecorder(t)
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = rep.mustWait(job(), i, sink)
	}
	fresh := r.agent(r.nodesIn(1, 1, jobs+1)[0])
	old.leave()
	for i, id := range ids {
		attempt := 1
		if i == 0 { // it had begun
			attempt = 2
		}
		sink.begun(id, attempt)
	}
	pause(t, servers[0])
	large := strings.Repeat("x", 100<<10) // read from the records
	for range ids {
		d := fresh.next()
		fresh.end(cell.Completion{
			Attempt: d.Attempt, State: freeslot.StateSucceeded,
			Result: json.RawMessage(fmt.Sprintf(`"%s %s"`, d.Attempt.Job, large)),
		})
	}
	direct := rep.mustPlace(job(), sink)
	fresh.complete(direct, `1`)
	sink.result(direct)
	for _, id := range ids {
		s := sink.result(id)
		if s.State != freeslot.StateSucceeded || string(s.Result) != fmt.Sprintf(`"%s %s"`, cell.MovedID(id, 1), large) {
			t.Errorf("job %s: %s, %.60s", id, s.State, s.Result)
		}
	}
}

// A cell that is away is asked who owns jobs that have moved on. Results of the other cell do not
// wait for that.
func TestDetachedWhileAnotherCellIsAway(t *testing.T) {
	t.Parallel()
	const jobs = 15 * fetchLimit // so many calls of ioTimeout each would take too long
	r, rep, servers := onTwoServers(t)
	a := r.agent(r.nodesIn(1, 1, jobs+1)[0])
	waittest.Until(t, "the node", func() bool { return rep.cache.Size() == 1 })
	sink, other := newRecorder(t), newRecorder(t)
	c, client := r.layouts[1], r.clients[1]
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = rep.mustPlace(job(), other)
		if err := client.Do(deadline(t), client.B().Hdel().Key(c.Job(ids[i])).Field("reply_to").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	last := rep.mustPlace(job(), sink)
	pause(t, servers[0])
	for _, id := range ids {
		add := client.B().Xadd().Key(c.Replies("r1")).Id("*").FieldValue().FieldValue("d", id).Build()
		if err := client.Do(deadline(t), add).Error(); err != nil {
			t.Fatal(err)
		}
	}
	a.complete(last, `1`)
	sink.result(last)
	for _, id := range ids { // no cell knows better
		other.want(id, "assigned")
	}
}

// The end of a job was missed, and another job of its cell has moved to a cell that is away. A
// recheck of both reports the end, which does not concern the other cell.
func TestRecheckWhileAnotherCellIsAway(t *testing.T) {
	t.Parallel()
	r, rep, servers := onTwoServers(t)
	a := r.agent(r.nodesIn(1, 1, 2)[0])
	waittest.Until(t, "the node", func() bool { return rep.cache.Size() == 1 })
	sink := newRecorder(t)
	ended, moved := rep.mustPlace(job(), sink), rep.mustPlace(job(), sink)
	set := func(id string, fields ...string) {
		t.Helper()
		b := r.clients[1].B().Arbitrary("HSET").Keys(r.layouts[1].Job(id)).Args(fields...)
		if err := r.clients[1].Do(deadline(t), b.Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	set(ended, "reply_to", "")
	a.complete(ended, `"done"`)
	set(moved, "state", "moved", "move", "0 1")
	pause(t, servers[0])
	newRechecker(rep.byCell[1]).recheck([]string{moved, ended})
	sink.want(ended, "assigned result")
	sink.want(moved, "assigned")
}
