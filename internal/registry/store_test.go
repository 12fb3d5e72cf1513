package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A tag that cannot be read takes nothing from the others.
func TestStoreUnreadTag(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		w := newWriter(t, redis, prefix)
		s := &Store{w.conn}
		tags := len(w.conn.runners)
		unread := func(service string) bool { return script.CellOf(service, tags) == script.CellOf("s0", tags) }
		var want []string
		for i := range 40 {
			service := fmt.Sprintf("s%d", i)
			w.register(service, "e1", []string{"a"}, func(r *Registration) { r.Check = &Check{Kind: "tcp", Interval: Milliseconds(time.Second)} })
			if !unread(service) {
				want = append(want, service)
			}
		}
		slices.Sort(want)
		runner, k := w.conn.of("s0")
		for _, key := range []string{k.services(), k.checked()} {
			if err := runner.Do(consumerContext(t), "set", runner.B().Set().Key(key).Value("no set").Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		check := func(got []string, err error) {
			t.Helper()
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("read %q, expected %q", got, want)
			}
			var partial *UnreadError
			if !errors.As(err, &partial) {
				t.Fatalf("error is %v, expected an UnreadError", err)
			}
			for i := range 40 {
				if service := fmt.Sprintf("s%d", i); partial.Unread(service) != unread(service) {
					t.Errorf("%s is unread: %t", service, partial.Unread(service))
				}
			}
		}
		check(s.Services(consumerContext(t)))
		targets, err := s.Targets(consumerContext(t))
		var names []string
		for i := range targets {
			names = append(names, targets[i].Service)
		}
		check(names, err)
	})
}
