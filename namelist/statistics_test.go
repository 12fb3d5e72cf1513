package namelist

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/statistics"
)

// The history has what clients have counted themselves, to the last lookup.
func TestStatisticsAreTheClients(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		var ids []string
		for i := range 400 {
			ids = append(ids, fmt.Sprint("member-", i))
		}
		r.create("vip", lists.Spec{})
		r.publish("vip", entriesOf(ids...))
		r.edit("vip", add("member-0"), drop("member-7"))
		reg := prometheus.NewRegistry()
		clients := []*Client{r.open(func(c *Config) { c.Registerer = reg }), r.open()}
		var want Counted
		for n, c := range clients {
			l := c.List("vip")
			r.must(l.WaitReady(ctx))
			var all []string
			for i := range 700 + 300*n {
				id := fmt.Sprint("stranger-", i)
				if i%7 == 0 {
					id = ids[i%len(ids)]
				}
				all = append(all, id)
				l.Check(ctx, id)
			}
			l.Peek("never-asked-member")
			l.Peek(ids[7]) // it is cached
			l.Check(ctx, "\n")
			l.CheckAll(ctx, all[:300])
			got := l.Counted()
			if lookups := uint64(700 + 300*n + 303); got.Lookups != lookups || got.Unknown == 0 || got.Calls == 0 || got.CallTime == 0 {
				t.Errorf("client %d has counted %+v; want %d lookups, unknown ones, calls and their time", n, got, lookups)
			}
			want.Hits, want.Misses, want.Unknown = want.Hits+got.Hits, want.Misses+got.Misses, want.Unknown+got.Unknown
			want.Calls, want.FalsePositives = want.Calls+got.Calls, want.FalsePositives+got.FalsePositives
		}
		k := statistics.New(r.Control, zap.NewNop(), nil)
		r.must(k.Add(ctx, "vip")) // perhaps in the middle of reports
		if n := testutil.CollectAndCount(reg, "freeslot_namelist_list_lookups_total"); n < 4 {
			t.Errorf("%d series of lookups; want one for each source and answer", n)
		}
		for _, c := range clients {
			r.must(c.Close(ctx))
		}
		r.must(k.Add(ctx, "vip"))
		r.must(k.Add(ctx, "vip"))
		got, _, err := k.Summary(ctx, "vip", time.Hour, time.Minute, "")
		r.must(err)
		hits, misses, unknown := got.Total.Results()
		if hits != want.Hits || misses != want.Misses || unknown != want.Unknown || got.Total.Calls() != want.Calls || got.Total[count.FalsePositives] != want.FalsePositives {
			t.Errorf("the history has %d hits, %d misses, %d unknown, %d calls: %v; want %+v", hits, misses, unknown, got.Total.Calls(), got.Total, want)
		}
		rate := func(hits, misses uint64) float64 { return float64(hits) / float64(hits+misses) }
		if is, own := rate(hits, misses), rate(want.Hits, want.Misses); math.Abs(is-own) > 0.00005 {
			t.Errorf("hit rate %.4f; want %.4f", is, own)
		}
		name := "(redis)"
		if r.replica != "" {
			name = "acme"
		}
		if len(got.Applications) != 1 || got.Applications[name] != got.Total {
			t.Errorf("applications %v; want %s alone", got.Applications, name)
		}
	})
}

// The history of a chain has what clients have decided, by rule and outcome, beside what its shadow
// has decided. It ends with the chain.
func TestStatisticsOfChains(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		r.create("vip", lists.Spec{Settings: lists.Settings{Whole: true}})
		r.publish("vip", entriesOf("ann"))
		r.putChain("checkout", 0, `{"name":"checkout","attributes":{"age":"integer"},"variants":{"new":null},"rules":[
			{"name":"testers","kind":"in","list":"vip","unknown":"skip","outcome":"variant: new"},
			{"name":"minors","kind":"expression","expression":"age < 18","unknown":"stop","outcome":"deny"}],"default":"allow"}`)
		d, _, err := chain.Parse([]byte(`{"name":"checkout","rules":[],"default":"allow"}`), nil)
		r.must(err)
		_, err = r.ShadowChain(ctx, lists.ChainPut{Chain: "checkout", Seen: 1, Document: string(chain.Encode(d)), By: nobody})
		r.must(err)
		reg := prometheus.NewRegistry()
		clients := []*Client{r.open(func(c *Config) { c.Registerer = reg }), r.open()}
		aged := func(age int) Subject { return Subject{Key: "bob", Attributes: map[string]any{"age": age}} }
		for _, client := range clients {
			c := client.Chain("checkout")
			r.must(c.WaitReady(ctx))
			r.awaitChain(c, "the shadow", func(s ChainStatus) bool { return s.Shadow })
			for i := range 10 {
				c.Evaluate(ctx, Subject{Key: "ann"})
				c.Peek(aged(30 - 2*i)) // 30 to 12
			}
			c.Evaluate(ctx, Subject{Key: "bob"})
		}
		k, mark := statistics.New(r.Control, zap.NewNop(), nil), lists.ChainMark("checkout")
		r.must(k.Add(ctx, mark)) // perhaps in the middle of reports
		if n := testutil.CollectAndCount(reg, "freeslot_namelist_chain_decisions_total"); n != 4 {
			t.Errorf("%d series of decisions; want 4, of testers, minors twice and the default", n)
		}
		for _, client := range clients {
			r.must(client.Close(ctx))
		}
		r.must(k.Add(ctx, mark))
		r.must(k.Add(ctx, mark))
		got, _, err := k.ChainSummary(ctx, "checkout", time.Hour, time.Minute)
		r.must(err)
		want := map[string]count.Counts{
			"testers":     {count.Variant: 20, count.ShadowDifferent: 20},
			"minors":      {count.Deny: 6, count.Undecided: 2, count.ShadowDifferent: 8},
			count.Default: {count.Allow: 14, count.ShadowSame: 14},
		}
		if diff := cmp.Diff(want, got.Applications); diff != "" {
			t.Errorf("decisions by rule: %s", diff)
		}
		r.must(r.DeleteChain(ctx, "checkout", 1))
		r.putChain("checkout", 0, `{"name":"checkout","rules":[],"default":"deny"}`)
		got, _, err = k.ChainSummary(ctx, "checkout", time.Hour, time.Minute)
		r.must(err)
		if got.Total != (count.Counts{}) {
			t.Errorf("a new chain has %v; want no statistics of the one that was deleted", got.Total)
		}
	})
}

// Each answer has its counter, and so has each reason.
func TestCountersOfAnswers(t *testing.T) {
	t.Parallel()
	for reason := ReasonNone + 1; reason.String() != "?"; reason++ {
		c := newClient(Config{}.withDefaults())
		l := c.List("vip")
		l.count(&Answer{Reason: reason})
		name := count.Names[count.Unknowns+int(reason)-1]
		if l.counts.Get(count.Unknowns+int(reason)-1) != 1 || !strings.HasPrefix(name, "unknown_"+strings.Fields(reason.String())[0]) && reason != ReasonListUnknown {
			t.Errorf("reason %q is counted as %v; want as %s", reason, l.counts.Counts(), name)
		}
	}
	for _, verdict := range []Verdict{Yes, No} {
		for source := SourceNone; source <= SourceWhole; source++ {
			name := count.Names[cells[verdict][source]]
			want := source.String() + "_" + verdict.String()
			switch {
			case source == SourceNone && verdict == No:
				want = "expired_no"
			case verdict == Yes && (source == SourceNone || source == SourceFilter):
				continue // there is no such answer
			}
			if name != want {
				t.Errorf("%s from %s is counted as %s; want %s", verdict, source, name, want)
			}
		}
	}
	if count.Unknowns+int(ReasonFormat) != count.Cells {
		t.Errorf("%d reasons, %d counters of them; want as many", ReasonFormat, count.Cells-count.Unknowns)
	}
}

// BenchmarkCounting is the processor time that counting adds to a lookup. Both take turns.
func BenchmarkCounting(b *testing.B) {
	l, _ := benchList(b, "fuse", 0)
	strangers := randomIDs(9, 1<<12)
	off := func(id string) (a Answer) {
		l.peek(&a, id)
		return a
	}
	spent := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	var without, with int64
	for range b.N {
		begun := spent()
		for range 256 {
			for _, id := range strangers {
				off(id)
			}
		}
		middle := spent()
		for range 256 {
			for _, id := range strangers {
				l.Peek(id)
			}
		}
		without, with = without+middle-begun, with+spent()-middle
	}
	lookups := float64(b.N * 256 * len(strangers))
	b.ReportMetric(float64(without)/lookups, "ns-off/lookup")
	b.ReportMetric(float64(with)/lookups, "ns-on/lookup")
}
