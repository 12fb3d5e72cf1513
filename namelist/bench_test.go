package namelist

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

const (
	benchIDs   = 1_000_000
	benchEdits = 10_000
	benchAsks  = 1 << 20 // ids that are asked, each once in a round
)

func randomIDs(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%016x", r.Uint64())
	}
	return ids
}

// benchList is a list of a million ids with so many edits, without Redis.
func benchList(b *testing.B, kind filter.Kind, edited int) (*List, []string) {
	b.Helper()
	c := newClient(Config{}.withDefaults())
	head := &lists.Head{Name: "vip", Birth: "b", Form: form.Exact, Seed: 7, State: lists.Active, Revision: 1}
	head.Serving = &lists.Version{Number: 1, Build: strings.Repeat("0123456789abcdef", 2), Segments: benchIDs / 80, BlockBits: 1, Filter: kind, FilterBytes: 1}
	l := newLoaded(head.Serving)
	ids := randomIDs(1, benchIDs)
	if kind != filter.None {
		keys := make([][]uint64, 2)
		for _, id := range ids {
			h := form.Sum(head.Seed, id)
			keys[form.Block(h, 1)] = append(keys[form.Block(h, 1)], h)
		}
		for i := range keys {
			var builder filter.Builder
			block, err := builder.Build(kind, keys[i])
			if err != nil {
				b.Fatal(err)
			}
			l.put(uint32(i), block, uint32(len(keys[i])))
		}
	}
	e := noEdits
	var changes []lists.Change
	for _, id := range randomIDs(3, edited) {
		changes = append(changes, lists.Change{Entry: lists.Entry{ID: id}})
	}
	if edited > 0 {
		e = e.with(7, 1, changes[edited/100:])
		e = e.with(7, 1, changes[:edited/100])
	}
	p := &snapshot{head: head, version: head.Serving, build: l.build, blocks: l.blocks, edits: e, asOf: time.Now(), replaced: make(chan struct{})}
	list := c.List("vip")
	list.snapshot.Store(p)
	return list, ids
}

// shuffled are n of the ids, in random order.
func shuffled(ids []string, n int) []string {
	r := rand.New(rand.NewPCG(5, 6))
	out := make([]string, n)
	for i := range out {
		out[i] = ids[r.IntN(len(ids))]
	}
	return out
}

// BenchmarkMiss is of strangers; bare is the filter alone with its hash known.
func BenchmarkMiss(b *testing.B) {
	strangers := randomIDs(9, benchAsks)
	ctx := context.Background()
	l, _ := benchList(b, filter.Fuse, 0)
	b.Run("bare", func(b *testing.B) {
		blocks, hashes := l.snapshot.Load().blocks, make([]uint64, benchAsks)
		for i, id := range strangers {
			hashes[i] = form.Sum(7, id)
		}
		b.ResetTimer()
		for i := range b.N {
			h := hashes[i%benchAsks]
			blocks[form.Block(h, 1)].Contains(h)
		}
	})
	for _, kind := range []filter.Kind{filter.Fuse, filter.Bloom} {
		for _, edited := range []int{0, 10_000, 50_000} {
			l, _ := benchList(b, kind, edited)
			var asked []string
			for _, id := range strangers {
				if l.Peek(id).Verdict == No {
					asked = append(asked, id)
				}
			}
			b.Run(fmt.Sprintf("filter=%s/edits=%d", kind, edited), func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					if a := l.Check(ctx, asked[i%len(asked)]); a.Verdict != No {
						b.Fatal(a)
					}
				}
			})
		}
	}
}

// BenchmarkCached is of members that the cache has; the other way round is what it would cost to
// ask the cache first, for members and for strangers.
func BenchmarkCached(b *testing.B) {
	ctx := context.Background()
	l, ids := benchList(b, filter.Fuse, 0)
	none, _ := benchList(b, filter.None, 0)
	for _, l := range []*List{l, none} {
		p := l.snapshot.Load()
		for _, id := range ids[:100_000] {
			l.client.cache.put(p.build, form.Sum(7, id), id, entry{has: true})
		}
	}
	var kept []string
	for _, id := range ids[:100_000] {
		if l.Peek(id).Verdict == Yes && none.Peek(id).Verdict == Yes {
			kept = append(kept, id)
		}
	}
	b.Logf("%d of 100,000 ids are in the cache", len(kept))
	asked := shuffled(kept, benchAsks)
	strangers := randomIDs(9, benchAsks)
	b.Run("hit", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if a := l.Check(ctx, asked[i%benchAsks]); a.Verdict != Yes {
				b.Fatal(a)
			}
		}
	})
	b.Run("hit/filter=none", func(b *testing.B) {
		for i := range b.N {
			none.Check(ctx, asked[i%benchAsks])
		}
	})
	b.Run("miss/filter=none", func(b *testing.B) { // what asking the cache first would add to a miss
		for i := range b.N {
			none.Peek(strangers[i%benchAsks])
		}
	})
}

// BenchmarkEdit is an edit of one id on top of so many.
func BenchmarkEdit(b *testing.B) {
	for _, n := range []int{0, 10_000, 50_000} {
		b.Run(fmt.Sprintf("edits=%d", n), func(b *testing.B) {
			var changes []lists.Change
			for _, id := range randomIDs(3, n) {
				changes = append(changes, lists.Change{Entry: lists.Entry{ID: id}})
			}
			base := noEdits.with(7, 1, changes)
			e := base
			ids := randomIDs(4, benchAsks)
			b.ResetTimer()
			for i := range b.N {
				if i%benchEdits == 0 {
					e = base
				}
				e = e.with(7, int64(i), []lists.Change{{Entry: lists.Entry{ID: ids[i%benchAsks]}}})
			}
		})
	}
}

// benchChain is a chain over benchList, without Redis.
func benchChain(b testing.TB, l *List, document string) *Chain {
	b.Helper()
	c := l.client.Chain("bench")
	v := newChainView("bench", 0)
	_, number, _ := v.fetch.Take(0)
	v.answered(number, &lists.ChainRecord{
		Mark: lists.Mark{Birth: "1", Revision: 1}, ChainVersion: lists.ChainVersion{Version: 1}, Document: document,
	}, func(string) *List { return l }, 0, 0)
	if v.tick(0); !v.dirty {
		b.Fatal("the chain is not shown; want it shown")
	}
	c.client.publishChain(c, v.state(time.Now(), 0))
	return c
}

// benchRules are three rules that a stranger passes, and one with an expression.
const benchRules = `{"name": "bench", "attributes": {"country": "string", "age": "integer"}, "variants": {"new": {"model": "m2"}}, "rules": [
	{"name": "testers", "kind": "in", "list": "vip", "unknown": "stop", "outcome": "variant: new"},
	{"name": "canary", "kind": "percentage", "percent": 1, "unknown": "stop", "outcome": "variant: new"},
	{"name": "season", "kind": "window", "from": "2036-01-01T00:00:00Z", "weekdays": ["mon"], "time_zone": "Europe/Berlin", "outcome": "allow"}%s],
	"default": "deny"}`

const benchExpression = `, {"name": "minors", "kind": "expression", "expression": "country in [\"DE\", \"FR\"] && age < 18", "unknown": "stop", "outcome": "deny"}`

// BenchmarkChain is of strangers, for whom all rules are evaluated.
func BenchmarkChain(b *testing.B) {
	l, _ := benchList(b, filter.Fuse, 0)
	ctx := context.Background()
	var strangers []string
	for _, id := range randomIDs(9, benchAsks) {
		if l.Peek(id).Verdict == No {
			strangers = append(strangers, id)
		}
	}
	attributes := map[string]any{"country": "DE", "age": 30}
	for name, more := range map[string]string{"rules=3": "", "rules=3+expression": benchExpression} {
		c := benchChain(b, l, fmt.Sprintf(benchRules, more))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if d := c.Evaluate(ctx, Subject{Key: strangers[i%len(strangers)], Attributes: attributes}); d.Outcome == OutcomeUnknown {
					b.Fatal(d)
				}
			}
		})
	}
}

// A decision from memory allocates nothing, and with an expression at most twice.
func TestChainAllocates(t *testing.T) {
	c := newClient(Config{}.withDefaults())
	l := c.List("vip")
	head := &lists.Head{Name: "vip", Form: form.Exact, Serving: &lists.Version{Number: 1, Build: firstBuild, Segments: 1}}
	l.snapshot.Store(&snapshot{head: head, version: head.Serving, edits: noEdits, whole: map[string]int64{"a": 0}, replaced: make(chan struct{})})
	attributes := map[string]any{"country": "DE", "age": 30}
	for more, want := range map[string]float64{"": 0, benchExpression: 2} {
		one := benchChain(t, l, fmt.Sprintf(benchRules, more))
		got := testing.AllocsPerRun(100, func() {
			one.Evaluate(context.Background(), Subject{Key: "b", Attributes: attributes})
		})
		if got > want {
			t.Errorf("%.0f allocations a decision; want at most %.0f", got, want)
		}
	}
}
