package finding

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a source whose answer tests set.
type fake struct {
	mu     sync.Mutex
	found  []Finding
	err    error
	blocks bool
	asked  atomic.Int32
}

func (f *fake) set(err error, found ...Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.found = err, found
}

func (f *fake) Look(ctx context.Context) ([]Finding, error) {
	f.asked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocks {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return slices.Clone(f.found), f.err
}

func newBoard(t *testing.T, memory, store *fake) *Board {
	b := New([]Source{{Name: "memory", Look: memory.Look, Memory: true}, {Name: "store", Look: store.Look}}, zap.NewNop())
	_ = b.Start(t.Context())
	t.Cleanup(func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v; want nil", err)
		}
	})
	return b
}

// TestSince: a finding keeps its beginning as long as it holds, also over a look that fails, and
// gets a new one when it comes again. A source in memory is watched while no one asks.
func TestSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Finding{ID: "a", Severity: Warning}
		memory, store := &fake{found: []Finding{a}}, &fake{}
		b := newBoard(t, memory, store)
		synctest.Wait()
		began := time.Now().UnixMilli()
		time.Sleep(time.Minute)
		if got := b.Look().Findings; len(got) != 1 || got[0].SinceMS != began {
			t.Fatalf("after a minute %+v; want a since %d", got, began)
		}
		memory.set(errors.New("away"))
		time.Sleep(time.Minute)
		if r := b.Look(); len(r.Findings) != 0 || !slices.Equal(r.Unknown, []string{"memory"}) {
			t.Errorf("while it fails %+v; want memory unknown", r)
		}
		memory.set(nil, a)
		time.Sleep(time.Minute)
		if got := b.Look().Findings; len(got) != 1 || got[0].SinceMS != began {
			t.Errorf("after the failure %+v; want a since %d", got, began)
		}
		memory.set(nil)
		time.Sleep(time.Minute)
		memory.set(nil, a)
		time.Sleep(time.Minute)
		if got := b.Look().Findings; len(got) != 1 || got[0].SinceMS <= began {
			t.Errorf("the second time %+v; want a later time than %d", got, began)
		}
		if asked := store.asked.Load(); asked != 4 {
			t.Errorf("the store was asked %d times; want once a look, 4", asked)
		}
	})
}

// TestLook: critical findings come first, then the oldest; a source's own time stands; many callers
// cost one look; a source that hangs is unknown, and delays a look by two seconds.
func TestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := &fake{found: []Finding{
			{ID: "young", Severity: Warning}, {ID: "old", Severity: Warning, SinceMS: 5}, {ID: "worst", Severity: Critical},
		}}
		store := &fake{found: []Finding{{ID: "long", Severity: Warning, SinceMS: 6, Names: strings.Split("abcdefghijklmnop", "")}}}
		b := newBoard(t, memory, store)
		var ids []string
		for range 3 {
			ids = nil
			for _, f := range b.Look().Findings {
				ids = append(ids, f.ID)
				if len(f.Names) > MaxNames {
					t.Errorf("%s has %d names; want at most %d", f.ID, len(f.Names), MaxNames)
				}
			}
		}
		if want := []string{"worst", "old", "long", "young"}; !slices.Equal(ids, want) {
			t.Errorf("order %v; want %v", ids, want)
		}
		if asked := store.asked.Load(); asked != 1 {
			t.Errorf("three looks asked the store %d times; want 1", asked)
		}
		store.blocks = true
		time.Sleep(2 * fresh)
		began := time.Now()
		if r := b.Look(); !slices.Equal(r.Unknown, []string{"store"}) || time.Since(began) != lookTimeout {
			t.Errorf("unknown %v after %v; want the store after %v", r.Unknown, time.Since(began), lookTimeout)
		}
	})
}
