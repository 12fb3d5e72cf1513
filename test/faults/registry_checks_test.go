package faults

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// checkedTargets are few enough that no replica doubts itself when all of them fail.
	checkedTargets = 9
	// checksMove is within which the checks of a replica that died are made by the others.
	checksMove = 10 * time.Second
)

// TestRegistryChecks: three replicas share the checks of instances. When one is killed the others
// soon make its checks, and see what goes from then on.
func TestRegistryChecks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, NewRecorder(), runFolder(t, "registry-checks"), fleetConfig{
		replicas: 3, cells: 1, replica: map[string]any{"registry": map[string]any{"checks": map[string]any{"networks": []string{"127.0.0.0/8"}}}},
	})
	client, err := f.client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store := registry.NewStore(client, prefix, false, zap.NewNop())
	var all []*checked
	for i := range checkedTargets {
		c := newChecked(t)
		all = append(all, c)
		if _, err := store.PutPersistent(t.Context(), registry.Registration{
			Service: "checked", ID: strconv.Itoa(i), Host: "127.0.0.1", Port: c.server.Addr().(*net.TCPAddr).Port,
			Check: &registry.Check{Kind: "tcp", Interval: registry.Milliseconds(time.Second), Fall: 2},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range all {
		if _, ok := c.next(0, startLimit); !ok {
			t.Fatalf("instance %d was never checked", i)
		}
	}

	f.programs["r2"].kill()
	killed, busy := Clock(), margin()
	var longest time.Duration
	for i, c := range all {
		at, ok := c.next(killed, startLimit)
		if !ok || at-killed > checksMove+busy() {
			t.Errorf("instance %d was not checked for %s after the replica was killed", i, checksMove)
		}
		longest = max(longest, at-killed)
	}
	t.Logf("all instances were checked again %s after the replica was killed", longest.Round(time.Millisecond))
	for _, c := range all {
		_ = c.server.Close()
	}
	for i := range all {
		if err := redistest.Await(func(ctx context.Context) bool {
			found, _, err := store.Instance(ctx, "checked", strconv.Itoa(i))
			return err == nil && found.Failing != ""
		}); err != nil {
			t.Errorf("no replica has found that instance %d does not answer: %v", i, err)
		}
	}
}

// checked is an instance that is checked.
type checked struct {
	server net.Listener
	at     chan time.Duration // of checks, by Clock
}

// newChecked is one that answers until the test ends.
func newChecked(t *testing.T) *checked {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &checked{server: server, at: make(chan time.Duration, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			c.at <- Clock() // it has room for all checks of the test
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return c
}

// next is when the instance was checked after a moment; false if it was not for so long.
func (c *checked) next(after, limit time.Duration) (at time.Duration, ok bool) {
	timeout := time.After(limit)
	for {
		select {
		case at := <-c.at:
			if at > after {
				return at, true
			}
		case <-timeout:
			return 0, false
		}
	}
}
