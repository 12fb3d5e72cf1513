package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestTopologies is TestSlots where the fleet is divided.
func TestTopologies(t *testing.T) {
	const jobs = 1500 // each slot is taken some thirty times
	for name, setup := range map[string]func(t *testing.T) *system{
		"four cells on one server": func(t *testing.T) *system {
			s := newSystem(t)
			s.cells = 4
			return s
		},
		"four cells on two servers": func(t *testing.T) *system {
			s := newSystem(t)
			s.more, s.cells = []*redistest.Target{redistest.New(t).Target}, 4
			return s
		},
		"one cell on a cluster": func(t *testing.T) *system {
			redis := redistest.Cluster(t)
			return &system{t: t, redis: redis, prefix: redis.Prefix(t)}
		},
		"four cells on a cluster": func(t *testing.T) *system {
			redis := redistest.Cluster(t)
			return &system{t: t, redis: redis, prefix: redis.Prefix(t), cells: 4}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkSlots(t, setup(t), jobs)
		})
	}
}

// TestServerIsDown: of two servers one dies. Its node is out, the other's goes on and
// takes every job; what ran on the lost one is answered when its server is back.
func TestServerIsDown(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	second := redistest.New(t, redistest.AppendOnly("always"))
	s.more, s.cells = []*redistest.Target{second.Target}, 2
	here, there := nodeIn(0), nodeIn(1)
	gate := make(chan struct{})
	held := newService(t, gate)
	s.startAgent(nodeSpec{id: there, slots: 4}, held)
	open := make(chan struct{})
	close(open)
	s.startAgent(nodeSpec{id: here, slots: 4}, newService(t, open))
	r := s.startReplicas(1, 2)[0]
	running := make(map[string]*client.Handle)
	for len(running) == 0 { // until the choice has fallen on the node that holds its jobs
		for i, h := range submitOurs(t, r.ws(), anyJobs(4)) {
			if strings.HasPrefix(h.ID(), "1-") {
				running[h.ID()+fmt.Sprint(i)] = h
			}
		}
	}
	second.Kill()

	ctx := waittest.Context(t)
	c := dial(ctx, t, r)
	// The first job may have been on its way to the lost server.
	eventually(t, func() error { return place(ctx, c, here) })
	for range 100 {
		if err := place(ctx, c, here); err != nil {
			t.Fatal(err)
		}
	}
	var ready struct {
		Ready  bool
		Checks []struct{ Name, Detail string }
	}
	eventually(t, func() error {
		status, err := r.get("/readyz", &ready)
		if err == nil && (status != http.StatusOK || !ready.Ready || !strings.Contains(fmt.Sprint(ready.Checks), "1 of 2 cells")) {
			err = fmt.Errorf("/readyz says %d, %+v", status, ready)
		}
		return err
	})

	second.Restart()
	close(gate)
	for _, h := range running {
		if status, err := h.Wait(ctx); err != nil || status.State != freeslot.StateSucceeded {
			t.Errorf("job %s of the server that was down: %s, %v", h.ID(), status.State, err)
		}
	}
	eventually(t, func() error { return place(ctx, c, there) })
}

func dial(ctx context.Context, t *testing.T, r *replica) *client.Client {
	t.Helper()
	c, err := client.Dial(ctx, r.ws(), client.Options{Name: "e2e"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// nodeIn is the name of a node that lives in a cell of two.
func nodeIn(index int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("node-%d", i); cell.NodeCell(name, 2) == index {
			return name
		}
	}
}

// place runs one job and returns an error unless it ran on the node.
func place(ctx context.Context, c *client.Client, node string) error {
	h, err := c.Submit(ctx, anyJobs(1)[0])
	if err != nil {
		return err
	}
	status, err := h.Wait(ctx)
	if err == nil && status.State != freeslot.StateSucceeded {
		err = fmt.Errorf("job %s ended %s", status.ID, status.State)
	}
	if err == nil && status.Node != node {
		err = errors.New("it ran on " + status.Node)
	}
	return err
}

// TestServerIsDownAtStart: a replica starts with what there is, and takes the other
// server in when it comes up.
func TestServerIsDownAtStart(t *testing.T) {
	t.Parallel()
	for _, missing := range []int{0, 1} {
		t.Run(fmt.Sprintf("server %d", missing), func(t *testing.T) {
			t.Parallel()
			s := &system{t: t, cells: 2}
			servers := []*redistest.Server{redistest.New(t), redistest.New(t)}
			s.redis, s.more, s.prefix = servers[0].Target, []*redistest.Target{servers[1].Target}, servers[0].Prefix(t)
			servers[missing].Kill()
			open := make(chan struct{})
			close(open)
			s.startAgent(nodeSpec{id: nodeIn(1 - missing), slots: 4}, newService(t, open))
			r := s.startReplicas(1, 1)[0]
			waitOurs(t, submitOurs(t, r.ws(), anyJobs(4)))
			servers[missing].Restart()
			s.startAgent(nodeSpec{id: nodeIn(missing), slots: 4}, newService(t, open))
			r.awaitNodes(2)
			c := dial(t.Context(), t, r)
			eventually(t, func() error { return place(t.Context(), c, nodeIn(missing)) })
		})
	}
}
