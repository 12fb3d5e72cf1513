package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// persist runs every job of the node whatever happens to Redis: it repeats calls until they are
// answered, as a real agent does.
func (a *agent) persist() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	complete := func(d cell.Dispatch) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			out, err := a.cell.Complete(ctx, cell.Completion{
				Node: a.node.ID, Epoch: a.epoch, Attempt: d.Attempt, State: freeslot.StateSucceeded, Result: d.Job.Payload,
			})
			if err == nil {
				if out == cell.CompletedStale {
					a.rig.t.Errorf("job %s was taken away", d.Attempt.Job)
				}
				return
			}
			<-tick.C
		}
	}
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		after := ""
		for ctx.Err() == nil {
			ds, err := a.cell.Dispatches(ctx, a.node.ID, after, time.Second, 64)
			if err != nil {
				<-tick.C
				continue
			}
			for _, d := range ds {
				after = d.ID
				running.Go(func() { complete(d) })
			}
		}
	})
	a.rig.t.Cleanup(func() { cancel(); running.Wait() })
}

// Redis is killed under load, twice, and keeps its data. Every accepted job has its one result, and
// no slot stays taken.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 15
	redis := redistest.New(t, redistest.AppendOnly("always"))
	r := newRig(t, redis.Target)
	r.agent(node("n1", 4)).persist()
	r.agent(node("n2", 4)).persist()
	replicas := []*replica{r.replica("r1", quick), r.replica("r2", quick)}
	var all sync.WaitGroup
	third := make(chan struct{}, clients*each)
	for c := range clients {
		rep := replicas[c%2]
		all.Go(func() {
			sink := newRecorder(t)
			for i := range each {
				payload := fmt.Sprintf(`"%d-%d"`, c, i)
				var id string
				waittest.Until(t, "a place", func() bool {
					rep.Submit(context.Background(), []Request{{Tenant: tenant, Job: &freeslot.Job{Service: "echo", Payload: json.RawMessage(payload)}}}, sink,
						func(_ int, a Accepted, err error) {
							jobID := a.JobID
							id = jobID
							if err != nil && !freeslot.CodeOf(err).Temporary() {
								t.Errorf("submit: %v", err)
							}
						})
					return id != "" || t.Failed()
				})
				if s := sink.result(id); string(s.Result) != payload {
					t.Errorf("job %s: %+v", id, s)
				}
				sink.want(id, "assigned result")
				third <- struct{}{}
			}
		})
	}
	for range 2 {
		for range clients * each / 3 {
			receive(t, "progress", third)
		}
		redis.Kill()
		redis.Restart()
	}
	all.Wait()
	// Jobs that were placed although their submit was given up have run as well.
	for _, id := range []string{"n1", "n2"} {
		waittest.Until(t, "free slots", func() bool { jobs, used := r.owned(id); return len(jobs) == 0 && used == 0 })
	}
	for _, rep := range replicas {
		rep.settled()
		waittest.Until(t, "nothing outstanding", func() bool { return rep.Outstanding() == 0 })
	}
}
