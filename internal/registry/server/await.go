package server

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"sync"

	"github.com/freeslot/freeslot/internal/registry"
)

// consumer lists the methods of *registry.Consumer that the routes call.
type consumer interface {
	Await(ctx context.Context, service string, wanted func(*registry.List) bool) (*registry.List, error)
	Unsubscribe(service string, listeners ...*registry.Listener) error
	AwaitDocument(ctx context.Context, name string, known int64) (registry.Document, error)
}

// discovered returns the healthy instances of a service, once their version differs from known.
func (r *routes) discovered(ctx context.Context, service, known string) (*registry.List, error) {
	list, err := r.follow(ctx, service, func(l *registry.List) bool { return versionOf(l.Healthy()) != known })
	if err != nil {
		return nil, err
	}
	return list.Healthy(), nil
}

// await waits until the revision of a service differs from known.
func (r *routes) await(ctx context.Context, service string, known int64) error {
	_, err := r.follow(ctx, service, func(l *registry.List) bool { return l.Revision != known })
	return err
}

// waiters counts the requests that wait for a service.
type waiters struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// follow runs the consumer's Await. When the last waiting request for a service has its answer, and
// the service never existed, or Redis has not shown it yet, the service is no longer followed:
// names that callers make up must not fill the memory.
func (r *routes) follow(
	ctx context.Context, service string, wanted func(*registry.List) bool,
) (list *registry.List, err error) {
	w := &r.waiters
	w.mu.Lock()
	w.counts[service]++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.counts[service]--; w.counts[service] > 0 {
			return
		}
		delete(w.counts, service)
		if list == nil || list.State == registry.StateEmpty && list.Why == registry.WhyNeverRegistered {
			_ = r.consumer.Unsubscribe(service) // a bad name is not followed
		}
	}()
	return r.consumer.Await(ctx, service, wanted)
}

// versionOf returns a version that changes with everything that a reader sees of a list of healthy
// instances, even with lateness, which has no revision.
func versionOf(l *registry.List) string {
	sum := crc32.NewIEEE()
	_, _ = fmt.Fprint(sum, l.State, l.Why, l.Last)
	for _, i := range l.Instances {
		_, _ = io.WriteString(sum, i.ID+"\n")
	}
	return strconv.FormatInt(l.Revision, 10) + "-" + strconv.FormatUint(uint64(sum.Sum32()), 16)
}
