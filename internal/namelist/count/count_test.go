package count

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
)

func BenchmarkInc(b *testing.B) {
	s := NewSet(24)
	b.Run("one", func(b *testing.B) {
		for i := range b.N {
			s.Inc(i & 7)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Inc(3)
			}
		})
	})
}

// No addition is lost, however many goroutines count.
func TestSetLosesNothing(t *testing.T) {
	t.Parallel()
	const goroutines, each = 16, 10_000
	s := NewSet(9)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := range each {
				s.Inc(i % 9)
				s.Add((i+1)%9, 2)
			}
		})
	}
	all.Wait()
	total := uint64(0)
	for i := range s.Len() {
		total += s.Get(i)
	}
	if total != goroutines*each*3 {
		t.Errorf("the counters have %d in all; want %d", total, goroutines*each*3)
	}
}

// Totals go on when rules come and go, and their number is bounded.
func TestRules(t *testing.T) {
	t.Parallel()
	var r Rules
	if got := r.Totals(); len(got) != 0 {
		t.Errorf("totals before the first set: %v; want none", got)
	}
	first := r.Set([]string{"testers", "rest"})
	first.Inc(Allow)
	second := r.Set([]string{"rest", "few"})
	first.Inc(RuleCells + Deny) // by a caller that has the former set still
	second.Add(Variant, 2)
	r.Set([]string{"few"}).Inc(ShadowSame)
	want := map[string]RuleCounts{"testers": {Allow: 1}, "rest": {Deny: 1, Variant: 2}, "few": {ShadowSame: 1}}
	if got := r.Totals(); !maps.Equal(got, want) {
		t.Errorf("totals are %v; want %v", got, want)
	}
	for i := range 2 * maxRules {
		before := r.Totals()
		r.Set([]string{strconv.Itoa(i)}).Inc(Undecided)
		for name, c := range r.Totals() {
			if c.Decisions() < before[name].Decisions() {
				t.Fatalf("%s has %v after %v; want totals that only grow", name, c, before[name])
			}
		}
	}
	got, sum := r.Totals(), uint64(0)
	for _, c := range got {
		sum += c.Decisions()
	}
	if len(got) > maxRules+1 || got[Other] == (RuleCounts{}) || sum != 4+2*maxRules {
		t.Errorf("%d rules with %d decisions in all, %v of them other; want at most %d rules with %d, some of them other",
			len(got), sum, got[Other], maxRules+1, 4+2*maxRules)
	}
}

// The largest report fits, and a text is what was reported.
func TestRuleReport(t *testing.T) {
	t.Parallel()
	long := RuleReport{Incarnation: "0123456789ab", AgeMS: 1 << 40, Rules: map[string]RuleCounts{}}
	for i := range maxRules + 1 {
		var c RuleCounts
		for cell := range c {
			c[cell] = maxCount - uint64(i)
		}
		long.Rules[fmt.Sprintf("%064d", i)] = c
	}
	if text := long.String(); len(text) > MaxRuleText {
		t.Errorf("the largest report has %d bytes; want at most %d", len(text), MaxRuleText)
	}
	for _, r := range []RuleReport{
		{Incarnation: "i", Rules: map[string]RuleCounts{}},
		{Incarnation: "i", AgeMS: 5, Rules: map[string]RuleCounts{"a": {Allow: 1}, Default: {Deny: 2, ShadowSame: 7, ShadowUndecided: 1}}},
	} {
		if got, err := ParseRuleReport(r.String()); err != nil || got.Incarnation != r.Incarnation || got.AgeMS != r.AgeMS || !maps.Equal(got.Rules, r.Rules) {
			t.Errorf("%q is read as %+v, %v; want %+v", r.String(), got, err, r)
		}
	}
}

func FuzzParseRuleReport(f *testing.F) {
	for _, text := range []string{
		"", "i", "i (age_ms)=5 a=1,2,3,4,5,6,7,8", "i a=1 a=2", "i a=", "i a=x", "i (default)=1 (other)=2", "i a=1,,2", "i  b=1", "i (age_ms)=9,1",
		"i a=99999999999999999999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRuleReport(text)
		if err != nil {
			return
		}
		again, err := ParseRuleReport(r.String())
		if err != nil && len(r.String()) <= MaxRuleText || err == nil && !maps.Equal(again.Rules, r.Rules) {
			t.Errorf("%q is read as %+v, and that as %+v, %v; want the same", text, r, again, err)
		}
	})
}
