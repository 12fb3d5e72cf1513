package main

import (
	"encoding/json"
	"testing"

	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDemand: what a replica counts, tells and reads again is in the table, by pool and service.
func TestDemand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("replicas tell each other their arrivals every ten seconds")
	}
	l := startWith(t, func(c *config.Replica) {
		c.Pools = selection.Pools{{ID: "blocking", Services: []string{"block"}}}
	})
	for range 6 {
		l.ctl(t, "submit", "block").expect(t, exitOK)
	}
	l.ctl(t, "submit", "block", "--in", "50s").expect(t, exitOK)
	soon(t, l.started, "a job to begin")
	var list demand.DemandList
	waittest.Until(t, "the replica to have told its arrivals", func() bool {
		out := l.ctl(t, "demand", "--pool", "blocking", "-o", "json").expect(t, exitOK).out
		must(t, json.Unmarshal([]byte(out), &list))
		return list.Pools[0].Arrivals > 0 && list.Pools[0].WaitingJobs > 0
	})
	p := list.Pools[0]
	if p.Nodes != 1 || p.UsedSlots != 4 || p.FreeSlots != 0 || p.WaitingJobs < 2 || p.WaitingJobs+p.DueJobs != 3 ||
		p.WantedSlots != 3 || p.OldestWaitMS == 0 || len(p.Services) != 1 || p.Services[0].Service != "block" {
		t.Errorf("%+v; want a node whose four slots are used, two waiting jobs, and one that is due", p)
	}
	l.ctl(t, "demand").expect(t, exitOK, "blocking", "block", "JOBS/S", "0.")
	l.ctl(t, "demand", "--pool", "none").expect(t, exitFailure, "pool none is not configured")
	close(l.release)
}
