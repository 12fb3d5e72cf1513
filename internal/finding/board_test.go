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

// period is a little more than the time for which an answer is fresh.
const period = fresh + time.Millisecond

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

// TestTurns: for someone who looks all the time, the sources that ask others take turns, one every
// two seconds, and none says anything older than promised. What is in memory is asked each time,
// what is watched only now and then, and what has failed again at once. A look that allows no age
// asks all.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const age, others = 15 * time.Second, 7
		memory, watched := &fake{}, &fake{}
		sources := []Source{{Name: "memory", Look: memory.Look, Memory: true}, {Name: "watched", Look: watched.Look, Watched: true}}
		asks := make([]*fake, others)
		for i := range asks {
			asks[i] = &fake{}
			sources = append(sources, Source{Name: string(rune('a' + i)), Look: asks[i].Look})
		}
		b := New(sources, zap.NewNop())
		total := func() (n int) {
			for _, f := range asks {
				n += int(f.asked.Load())
			}
			return n
		}
		if b.LookWithin(age); total() != others {
			t.Fatalf("the first look asks %d; want all %d", total(), others)
		}
		for range 60 {
			time.Sleep(period)
			before := total()
			b.LookWithin(age)
			b.LookWithin(age)
			if n := total() - before; n != 1 {
				t.Fatalf("a look asks %d; want 1", n)
			}
			for i := range asks {
				if old := time.Since(b.parts[2+i].at); old > age {
					t.Fatalf("source %d has said something %s ago; want at most %s", i, old, age)
				}
			}
		}
		if n := memory.asked.Load(); n != 61 {
			t.Errorf("the source in memory was asked %d times; want 61, once a look", n)
		}
		if n := watched.asked.Load(); n > 8 {
			t.Errorf("the watched source was asked %d times by looks in two minutes; want 8, when its answer was too old", n)
		}
		asks[3].set(errors.New("away"))
		for len(b.LookWithin(age).Unknown) == 0 {
			time.Sleep(period)
		}
		failed := asks[3].asked.Load()
		asks[3].set(nil, Finding{ID: "d"})
		time.Sleep(period)
		if r := b.LookWithin(age); len(r.Unknown) != 0 || len(r.Findings) != 1 || asks[3].asked.Load() != failed+1 {
			t.Errorf("after a failure %+v; want the source asked again at once", r)
		}
		before := total()
		time.Sleep(period)
		if b.Look(); total() != before+others {
			t.Errorf("a look that allows no age asks %d; want all %d", total()-before, others)
		}
	})
}
