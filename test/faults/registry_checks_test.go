package faults

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/registry"
)

const (
	// checkedTargets are few enough that no replica doubts itself when all of them fail.
	checkedTargets = 9
	// checksMove is within which the checks of a replica that died are made by the others.
	checksMove = 10 * time.Second
)

// TestRegistryChecks: three replicas share the checks of instances. One is killed at the moment at which
// all instances go: the others find out for all of them.
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
	var servers []net.Listener
	for i := range checkedTargets {
		server := listen(t)
		servers = append(servers, server)
		if _, err := store.PutPersistent(t.Context(), registry.Registration{
			Service: "checked", ID: strconv.Itoa(i), Host: "127.0.0.1", Port: server.Addr().(*net.TCPAddr).Port,
			Check: &registry.Check{Kind: "tcp", Interval: registry.Milliseconds(time.Second), Fall: 2},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, server := range servers { // all are checked before anything breaks
		_ = server.(*net.TCPListener).SetDeadline(time.Now().Add(startLimit))
		conn, err := server.Accept()
		if err != nil {
			t.Fatalf("the instance at %s was never checked: %v", server.Addr(), err)
		}
		_ = conn.Close()
	}

	f.programs["r2"].kill()
	killed := time.Now()
	for _, server := range servers {
		_ = server.Close()
	}
	for i := range checkedTargets {
		if err := redistest.Await(func(ctx context.Context) bool {
			found, _, err := store.Instance(ctx, "checked", strconv.Itoa(i))
			return err == nil && found.Failing != ""
		}); err != nil {
			t.Errorf("no replica has found that instance %d does not answer: %v", i, err)
		}
	}
	took := time.Since(killed)
	t.Logf("all checks failed %s after the replica was killed", took.Round(time.Millisecond))
	if took > checksMove {
		t.Errorf("the checks of the killed replica were made after %s, expected at most %s", took, checksMove)
	}
}

// listen is a server on loopback until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}
