package own

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func names(from, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("list-", from+i))
	}
	return all
}

// Borrowed lists are bounded, shared, and let go once no one uses them.
func TestBorrow(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	cfg := config.DefaultReplica()
	cfg.Redis.URL, cfg.Redis.KeyPrefix = redis.AdminURL(), redis.Prefix(t)
	l := New(cfg, zap.NewNop(), prometheus.NewRegistry())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, release, err := l.Borrow(names(0, 100))
	must(err)
	second, releaseSecond, err := l.Borrow(names(50, 78))
	must(err)
	if first != second {
		t.Error("two comparisons have clients of their own; want one client")
	}
	if _, _, err := l.Borrow(names(128, 1)); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Errorf("a list beyond the bound: %v; want overloaded", err)
	}
	release()
	release()
	l.expire()
	if l.guest.client != first || l.guest.users != 1 {
		t.Errorf("%d comparisons have the client %p; want 1 to have %p still", l.guest.users, l.guest.client, first)
	}
	releaseSecond()
	third, release, err := l.Borrow(names(128, 1))
	must(err)
	if third == first || len(l.guest.lists) != 1 {
		t.Errorf("%d lists are followed; want the new one alone, by a new client", len(l.guest.lists))
	}
	release()
	l.expire()
	if l.guest.client != nil {
		t.Error("there is a client after the last comparison's time; want none")
	}
	_, release, err = l.Borrow(names(0, 1))
	must(err)
	must(l.Stop(waittest.Context(t)))
	release()
	if _, _, err := l.Borrow(nil); err == nil {
		t.Error("lists can be borrowed after the end; want an error")
	}
}
