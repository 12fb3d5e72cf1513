package dispatch

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// spy counts the calls of a dispatcher to the cache.
type spy struct {
	*cache.Cache
	settled, failed, refused atomic.Int64
}

// on puts a spy on a replica's cache.
func (s *spy) on(c *replicaConfig) {
	c.nodes = func(c *cache.Cache) Nodes {
		s.Cache = c
		return s
	}
}

func (s *spy) Settle(service string, r *freeslot.Requirement) *selection.Class {
	s.settled.Add(1)
	return s.Cache.Settle(service, r)
}

func (s *spy) CellFailed(cell int) {
	s.failed.Add(1)
	s.Cache.CellFailed(cell)
}

func (s *spy) CellRefused(cell int) {
	s.refused.Add(1)
	s.Cache.CellRefused(cell)
}

// refusing are ways to make a server refuse writes, each with its undo. MASTERDOWN refuses reads as
// well, and NOPERM only scripts.
var refusing = map[string][2][][]string{
	"NOREPLICAS": {{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, {{"CONFIG", "SET", "min-replicas-to-write", "0"}}},
	"READONLY":   {{{"REPLICAOF", "127.0.0.1", "1"}}, {{"REPLICAOF", "NO", "ONE"}}},
	"MASTERDOWN": {
		{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}}, {{"REPLICAOF", "NO", "ONE"}},
	},
	"NOPERM": {
		{{"ACL", "SETUSER", "default", "-evalsha"}, {"ACL", "SETUSER", "replica", "-evalsha"}},
		{{"ACL", "SETUSER", "default", "+evalsha"}, {"ACL", "SETUSER", "replica", "+evalsha"}, {"ACL", "LOG", "RESET"}}, // the log fails tests
	},
}

func run(t *testing.T, client rueidis.Client, commands [][]string) {
	t.Helper()
	for _, args := range commands {
		if err := client.Do(deadline(t), client.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatalf("%v: %v; want no error", args, err)
		}
	}
}

// One of two servers refuses writes and answers reads. Every job goes to the other one at once, and
// hardly any is sent to the first. When it is well, it is used again.
func TestOneServerRefusesWrites(t *testing.T) {
	t.Parallel()
	for name, how := range refusing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := twoServers(t)
			here, there := r.nodesIn(0, 1, 1000)[0], r.nodesIn(1, 1, 60_000)[0]
			there.Services = append(there.Services, freeslot.Service{Name: "rare"})
			r.agent(here)
			r.agent(there)
			spied := new(spy)
			rep := r.replica("r1", quick, spied.on)
			sink := newRecorder(t)
			waittest.Until(t, "jobs in both cells", func() bool { return ofJob(t, rep.mustPlace(job(), sink)) == 1 })

			run(t, r.clients[1], how[0])
			begin := time.Now()
			for range 100 {
				if id := rep.mustPlace(job(), sink); ofJob(t, id) != 0 {
					t.Errorf("job %s was placed where writes are refused", id)
				}
			}
			// One probe a second, and one more at either end. What was under way in the cell before
			// is not counted twice.
			if n, most := spied.refused.Load(), int64(time.Since(begin)/time.Second)+2; n > most {
				t.Errorf("%d jobs were sent to the cell that refuses, expected %d at most", n, most)
			}
			settled := spied.settled.Load()
			_, err := rep.place(&freeslot.Job{Service: "rare"}, sink)
			if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 || strings.Contains(e.Message, "may have been placed") {
				t.Errorf(`%+v; want e.RetryAfter > 0, not strings.Contains(e.Message, "may have been placed")`, e)
			}
			if n := spied.settled.Load() - settled; n > 2 {
				t.Errorf("it was searched %d times although it is known", n)
			}
			if spied.refused.Load() == 0 && name != "MASTERDOWN" { // there a comparison may be faster
				t.Error("the cache did not hear of a refusal")
			}

			run(t, r.clients[1], how[1])
			waittest.Until(t, "the cell is used again", func() bool {
				_, err := rep.place(&freeslot.Job{Service: "rare"}, sink)
				return err == nil
			})
		})
	}
}

// The only server refuses writes: the client learns at once that nothing was placed.
func TestOnlyServerRefusesWrites(t *testing.T) {
	t.Parallel()
	for name, how := range refusing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redistest.New(t).Target)
			r.agent(node("n1", 8))
			spied := new(spy)
			rep := r.replica("r1", spied.on)
			rep.mustPlace(job(), newRecorder(t))
			run(t, r.client, how[0])
			for range 3 {
				refused := spied.refused.Load()
				_, err := rep.place(job(), newRecorder(t))
				if e := asError(t, err, freeslot.CodeUnavailable); e.RetryAfter <= 0 || strings.Contains(e.Message, "may have been placed") {
					t.Errorf(`%+v; want e.RetryAfter > 0, not strings.Contains(e.Message, "may have been placed")`, e)
				}
				if n := spied.refused.Load() - refused; n > 1 {
					t.Errorf("it was sent %d times", n)
				}
			}
			run(t, r.client, how[1])
			waittest.Until(t, "writes are taken again", func() bool { _, err := rep.place(job(), newRecorder(t)); return err == nil })
			if jobs, _ := r.owned("n1"); len(jobs) != 2 || rep.Outstanding() != 2 {
				t.Errorf("owned %v, %d outstanding", jobs, rep.Outstanding())
			}
		})
	}
}

// A call of unknown outcome may still be applied after its repetition was refused. The job stays in
// its cell, under its id, and waits there if it must.
func TestUnknownOutcomeStaysInItsCell(t *testing.T) {
	t.Parallel()
	for _, room := range []bool{true, false} {
		t.Run(map[bool]string{true: "another node of the cell", false: "no other node of the cell"}[room], func(t *testing.T) {
			t.Parallel()
			shared := redistest.Shared(t)
			r := newCells(t, 2, shared, redistest.New(t).Target)
			nodes := r.nodesIn(0, 2, 60_000) // where the job goes first
			bad, elsewhere := r.agent(nodes[0]), r.agent(r.nodesIn(1, 1, 1)[0])
			if room {
				nodes[1].MaxConcurrency = 2
				r.agent(nodes[1])
			}
			p := newProxy(t, shared)
			rep := r.replica("r1", blind, func(c *replicaConfig) {
				c.url = p.url()
				c.dispatch.Candidates = 1
			})
			if n, known := rep.cache.Node(nodes[1].ID); known {
				n.SetUsed(1) // so that it comes second
			}
			bad.heartbeat(freeslot.StatusDraining)
			p.cutOn("mark-1", lost, 1)
			id, err := rep.place(&freeslot.Job{Service: "echo", Payload: json.RawMessage(`"mark-1"`)}, newRecorder(t))
			if n := p.cuts.Load(); n != 1 {
				t.Fatalf("cut %d times", n)
			}
			if err != nil || ofJob(t, id) != 0 {
				t.Errorf("job %q: %v", id, err)
			}
			if s, err := rep.Job(deadline(t), tenant, id); err != nil || (s.State == freeslot.StateWaiting) == room {
				t.Errorf("%+v, %v; want no error, (s.State == freeslot.StateWaiting) != %v", s, err, room)
			}
			if jobs, _ := r.owned(elsewhere.node.ID); len(jobs) != 0 {
				t.Errorf("the other cell has %v", jobs)
			}
		})
	}
}
