package selection

import (
	"math"
	"sort"
	"sync"
	"testing"
	"time"
)

// restsUntil returns how long after now the node is in quarantine.
func restsUntil(n *Node, now int64) time.Duration {
	return time.Duration(sort.Search(int(time.Hour), func(after int) bool { return !n.quarantined(now + int64(after)) }))
}

func (n *Node) quarantined(now int64) bool {
	q := Query{Now: now, SilenceLimit: 1000 * time.Hour}
	return q.check(n) == ReasonQuarantined
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	for _, start := range []int64{-int64(time.Hour / 2), 0, int64(time.Hour / 2)} {
		n := newTestNode("a", 1)
		n.Seen(start)
		now := start
		for range QuarantineAfter - 1 {
			n.Refused(now)
		}
		if n.quarantined(now) {
			t.Error("in quarantine before the third refusal")
		}
		want := QuarantineFirst
		for range 8 {
			n.Refused(now)
			got := restsUntil(n, now)
			if diff := (want - got).Abs(); diff > time.Microsecond {
				t.Fatalf("the quarantine lasts %s, want %s", got, want)
			}
			n.Refused(now + int64(want)/2) // one that was under way
			if again := restsUntil(n, now); again != got {
				t.Fatalf("a refusal during the quarantine moved its end from %s to %s", got, again)
			}
			now += int64(got)
			want = min(2*want, QuarantineLongest)
		}
		n.Accepted()
		n.Refused(now)
		n.Refused(now)
		if n.quarantined(now) {
			t.Error("refusals from before a success count")
		}
	}
}

func TestQuarantineCountEnds(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 1)
	for i := range int64(1000) {
		n.Refused(i * int64(time.Minute))
	}
	if got := restsUntil(n, 999*int64(time.Minute)); got > QuarantineLongest+time.Microsecond || n.refusals() != math.MaxUint8 {
		t.Errorf("after 1000 refusals: %s, count %d", got, n.refusals())
	}
}

func TestQuarantineIgnoredAsLastResort(t *testing.T) {
	t.Parallel()
	n := newTestNode("a", 1)
	for range QuarantineAfter {
		n.Refused(0)
	}
	class, dst := ttsClass([]*Node{n}), make([]*Node, 0, 1)
	if got := class.Choose(dst, &Query{}, NewSource(1)); len(got) != 0 {
		t.Error("a node in quarantine is chosen")
	}
	if got := class.Choose(dst, &Query{IgnoreFull: true}, NewSource(1)); len(got) != 1 {
		t.Error("a node in quarantine is not chosen as a last resort")
	}
	n.Accepted()
	if got := class.Choose(dst, &Query{}, NewSource(1)); len(got) != 1 {
		t.Error("the quarantine goes on after a success")
	}
}

// Of refusals that race, at one moment, exactly three count: the third begins the
// quarantine, and the others find it. Successes that race never leave a node in
// quarantine for longer than the first one.
func TestQuarantineRaces(t *testing.T) {
	t.Parallel()
	for range 200 {
		n := newTestNode("a", 1)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { n.Refused(5) })
		}
		wg.Wait()
		if got := n.refusals(); got != QuarantineAfter {
			t.Fatalf("%d refusals count, want %d", got, QuarantineAfter)
		}
		for range 4 {
			wg.Go(func() { n.Refused(5) })
			wg.Go(n.Accepted)
		}
		wg.Wait()
		if got := restsUntil(n, 5); got > QuarantineFirst+time.Microsecond {
			t.Fatalf("the quarantine lasts %s", got)
		}
		n.Accepted()
		if n.quarantined(5) || n.refusals() != 0 {
			t.Fatal("a success leaves something behind")
		}
	}
}
