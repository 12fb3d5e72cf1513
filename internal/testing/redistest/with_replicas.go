package redistest

import (
	"context"
	"strconv"
	"testing"
)

// WithReplicas is one test's own master with replicas, without automatic failover. Only the test's
// own goroutine may call its methods.
type WithReplicas struct {
	*Server  // the master
	Replicas []*Server
}

// NewWithReplicas starts a master and n replicas. When it returns they have caught up, and the
// master knows that. The options apply to all.
func NewWithReplicas(tb testing.TB, n int, options ...Option) *WithReplicas {
	tb.Helper()
	// By default a master waits five seconds for further replicas before it sends its data.
	options = append(options, Args("--repl-diskless-sync-delay", "0"))
	r := &WithReplicas{Server: New(tb, options...)}
	follow := Args("--replicaof", "127.0.0.1 "+strconv.Itoa(r.Process().Port()))
	for range n {
		r.Replicas = append(r.Replicas, New(tb, append(options, follow)...))
	}
	for _, replica := range r.Replicas {
		if err := Await(func(ctx context.Context) bool { return synced(ctx, replica.Process()) }); err != nil {
			tb.Fatalf("waited for a replica to catch up: %v", err)
		}
	}
	if err := Await(func(ctx context.Context) bool { return online(ctx, r.Process()) == n }); err != nil {
		tb.Fatalf("waited for the master to hear of it: %v", err)
	}
	return r
}

// Promote makes a replica a master of its own, as a failover does. The others get no message.
func (r *WithReplicas) Promote(replica *Server) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := Ask(ctx, replica.Addrs()[0], "REPLICAOF", "NO", "ONE").Error(); err != nil {
		r.tb.Fatalf("promote: %v", err)
	}
}
