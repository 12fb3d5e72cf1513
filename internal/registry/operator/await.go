package operator

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/freeslot/freeslot/internal/registry"
)

// consumer is what the routes need of *registry.Consumer.
type consumer interface {
	Await(ctx context.Context, service string, wanted func(*registry.List) bool) (*registry.List, error)
	Unsubscribe(service string) error
	AwaitDocument(ctx context.Context, name string, known int64) (registry.Document, error)
}

// discovered are the healthy instances of a service, once their version is another one than known.
func (r *routes) discovered(ctx context.Context, service, known string) (*registry.List, error) {
	list, err := r.consumer.Await(ctx, service, func(l *registry.List) bool { return versionOf(l.Healthy()) != known })
	if err != nil {
		return nil, err
	}
	r.unfollow(list)
	return list.Healthy(), nil
}

// await waits until a service has another revision than known.
func (r *routes) await(ctx context.Context, service string, known int64) error {
	list, err := r.consumer.Await(ctx, service, func(l *registry.List) bool { return l.Revision != known })
	if err == nil {
		r.unfollow(list)
	}
	return err
}

// unfollow forgets a service that never was: names that callers make up must not fill the memory.
func (r *routes) unfollow(l *registry.List) {
	if l.State == registry.StateEmpty && l.Why == registry.WhyNeverRegistered {
		_ = r.consumer.Unsubscribe(l.Service) // another request may have done it
	}
}

// versionOf changes with what a reader sees of a list of healthy instances: also when one is late,
// which has no revision.
func versionOf(l *registry.List) string {
	sum := crc32.NewIEEE()
	_, _ = fmt.Fprint(sum, l.State, l.Why, l.Last)
	for _, i := range l.Instances {
		_, _ = io.WriteString(sum, i.ID+"\n")
	}
	return strconv.FormatInt(l.Revision, 10) + "-" + strconv.FormatUint(uint64(sum.Sum32()), 16)
}
