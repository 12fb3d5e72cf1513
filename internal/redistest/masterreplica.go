package redistest

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// WithReplicas is one test's own master with replicas, without anything that fails over by itself. Its
// methods are for the test's own goroutine.
type WithReplicas struct {
	*Server  // the master
	Replicas []*Server
}

// NewWithReplicas starts a master and n replicas, which have caught up when it returns. The options are
// of all.
func NewWithReplicas(tb testing.TB, n int, options ...Option) *WithReplicas {
	tb.Helper()
	// By default a master waits five seconds for further replicas before it sends its data.
	options = append(options, Args("--repl-diskless-sync-delay", "0"))
	r := &WithReplicas{Server: New(tb, options...)}
	follow := Args("--replicaof", "127.0.0.1 "+strconv.Itoa(r.Process().Port()))
	for range n {
		r.Replicas = append(r.Replicas, New(tb, append(options, follow)...))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(viewCheck)
	defer tick.Stop()
	for _, replica := range r.Replicas {
		for !synced(ctx, replica.Process()) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				tb.Fatalf("waited %s for a replica to catch up", startLimit)
			}
		}
	}
	return r
}

// Promote makes a replica a master of its own, as a failover does; nobody else is told.
func (r *WithReplicas) Promote(replica *Server) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := ask(ctx, replica.Process(), "REPLICAOF", "NO", "ONE").Error(); err != nil {
		r.tb.Fatalf("promote: %v", err)
	}
}
