package registry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fill registers n instances i0 to i<n-1>.
func (r *rig) fill(service string, n int) {
	r.t.Helper()
	for from := 0; from < n; from += callItems {
		var items []registerItem
		for i := from; i < min(from+callItems, n); i++ {
			items = append(items, item("e1", "", registration(service, fmt.Sprintf("i%d", i))))
		}
		r.put(service, codeDone, items...)
	}
}

// alive lets instances from to n-1 beat.
func (r *rig) alive(service string, from, n int) {
	r.t.Helper()
	for i := from; i < n; i++ {
		if got := r.beat(service, beatItem{fmt.Sprintf("i%d", i), "e1", "", ""}); got != "2" {
			r.t.Fatalf("i%d: %s", i, got)
		}
	}
}

func TestCleanup(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		if got := r.clean(svc); got.removed != 0 || got.more || got.guard != "" {
			t.Errorf("%+v", got)
		}
		r.fill(svc, 10)
		r.put(svc, codeDone, item("e1", "", registration(svc, "p", func(x *Registration) { x.Persistent, x.Check = true, &Check{Kind: "tcp"} })),
			item("e1", "", registration(svc, "slow", func(x *Registration) { x.Interval = 30 * time.Second })))
		heard := r.hear(r.keys(svc).change(svc))
		r.pass(svc, 40*time.Second)
		if got := r.clean(svc); got.removed != 0 || r.record(svc)["longest"] != "30000" {
			t.Errorf(`%+v, %v; want got.removed == 0, r.record(svc)["longest"] == "30000"`, got, r.record(svc))
		}
		// The first one in an interval is let through.
		r.pass(svc, 85*time.Second)
		r.alive(svc, 3, 10)
		r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-10_000, 10))
		r.unchanged("a cleanup too soon", func() {
			if got, err := r.cleanup(bounded(t), svc); got.removed != 0 || err != nil {
				t.Errorf("%+v, %v; want got.removed == 0, no error", got, err)
			}
		})
		// i0 to i2 and slow are 4 of 12: too many at once. One of them comes back.
		r.alive(svc, 2, 3)
		if got := r.clean(svc); got.removed != 3 || got.more || got.guard != "" {
			t.Errorf("%+v", got)
		}
		e := receive(t, heard)
		slices.Sort(e.Instances)
		if e.ChangeType != "removed" || e.Reason != "expired" || !slices.Equal(e.Instances, []string{"i0", "i1", "slow"}) {
			t.Errorf(`%+v; want e.ChangeType == "removed", e.Reason == "expired", slices.Equal(e.Instances, []string{"i0", "i1", "slow"})`, e)
		}
		if r.record(svc)["longest"] != "10000" {
			t.Errorf(`%v; want r.record(svc)["longest"] == "10000"`, r.record(svc))
		}
		if len(r.instance(svc, "i0")) != 0 || len(r.instance(svc, "i2")) == 0 || r.beats(svc)["p"] != -1 {
			t.Error("the wrong ones are gone")
		}
		// One that does not beat goes when it has failed its checks for the limit.
		if code, err := r.verdict(bounded(t), svc, "p", "e1", false, "refused"); code != codeDone || err != nil {
			t.Fatal(code, err)
		}
		receive(t, heard)
		again := func() {
			t.Helper()
			if code, err := r.verdict(bounded(t), svc, "p", "e1", false, "refused"); code != codeSame || err != nil {
				t.Fatal(code, err)
			}
		}
		for range 3 {
			r.pass(svc, 35*time.Second)
			if got := r.clean(svc); got.removed != 0 {
				t.Errorf("%+v; want got.removed == 0", got)
			}
			again()
			r.alive(svc, 2, 10)
		}
		r.pass(svc, 20*time.Second)
		if got := r.clean(svc); got.removed != 1 {
			t.Errorf("%+v; want got.removed == 1", got)
		}
		if e := receive(t, heard); e.Reason != "checks_failed" || !slices.Equal(e.Instances, []string{"p"}) {
			t.Errorf(`%+v; want e.Reason == "checks_failed", slices.Equal(e.Instances, []string{"p"})`, e)
		}
		// The settings of a service go before the defaults.
		r.do("HSET", r.keys(svc).record(svc), "limit", "40000", "every", "60000")
		r.pass(svc, 30*time.Second) // i2 to i9 are silent for 45 s
		r.alive(svc, 3, 10)
		r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-10_001, 10))
		if got, err := r.cleanup(bounded(t), svc); got.removed != 1 || err != nil {
			t.Errorf("%+v, %v, %v; want got.removed == 1, no error", got, err, r.record(svc))
		}
	})
}

// TestCleanupKeepsUnchecked: an instance without heartbeats stays where its checks stopped, until they
// have failed for the limit anew. One that an operator registered stays in any case.
func TestCleanupKeepsUnchecked(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		s := &Store{r.conn}
		if _, err := s.PutPersistent(bounded(t), Registration{Service: svc, ID: "db", Host: "10.0.0.7", Port: 5432, Check: &Check{Kind: "tcp"}}); err != nil {
			t.Fatal(err)
		}
		r.fill(svc, 5)
		r.put(svc, codeDone, item("e1", "", registration(svc, "p", func(x *Registration) { x.Persistent, x.Check = true, &Check{Kind: "tcp"} })))
		fails := func(epochs map[string]string) {
			t.Helper()
			for id, epoch := range epochs {
				if _, err := r.verdict(bounded(t), svc, id, epoch, false, "refused"); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass := func(d time.Duration) (removed int) {
			t.Helper()
			for ; d > 0; d -= 30 * time.Second {
				r.pass(svc, 30*time.Second)
				r.alive(svc, 0, 5)
				removed += r.clean(svc).removed
			}
			return removed
		}
		both := map[string]string{"p": "e1", "db": persistentEpoch}
		fails(both)
		if got := pass(10 * time.Minute); got != 0 {
			t.Errorf("%d instances were removed whose checks had stopped", got)
		}
		for range 5 { // the first one begins anew
			fails(both)
			if got := pass(30 * time.Second); got != 0 && len(r.instance(svc, "p")) != 0 {
				t.Errorf("%d instances were removed", got)
			}
		}
		if _, left := r.beats(svc)["p"]; left {
			t.Error("p has failed its checks for the limit, and is still there")
		}
		for range 5 {
			fails(map[string]string{"db": persistentEpoch})
			pass(30 * time.Second)
		}
		if _, left := r.beats(svc)["db"]; !left {
			t.Error("what an operator registered was removed")
		}
	})
}

// TestCleanupLimits: no limit is shorter than three of the longest intervals, so that no living
// instance is removed; and with a short limit and few cleanups a dead one goes all the same.
func TestCleanupLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.put(svc, codeDone, item("e1", "", registration(svc, "slow", func(x *Registration) { x.Interval = MaxHeartbeatInterval })))
		for range 8 { // by 30 s each
			r.pass(svc, 30*time.Second)
			if got, err := r.cleanup(bounded(t), svc); got.removed != 0 || err != nil {
				t.Fatalf("%+v, %v: a living instance was removed", got, err)
			}
		}
		r.remove(svc, reasonDeregistered, deregisterItem{"slow", "e1"})
		r.fill(svc, 1)
		r.do("HSET", r.keys(svc).record(svc), "limit", "20000", "every", "3000")
		removed := 0
		pause := DefaultCleanupEvery
		for range 30 { // as often as it asks for
			r.pass(svc, max(pause, time.Second))
			got, err := r.cleanup(bounded(t), svc)
			if err != nil {
				t.Fatal(err)
			}
			removed, pause = removed+got.removed, got.every
		}
		if removed != 1 {
			t.Errorf("%d instances were removed, expected the dead one", removed)
		}
	})
}

// TestVerdictOfAnotherCheck: a verdict ends with its check, and none is left to remove the
// instance.
func TestVerdictOfAnotherCheck(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		with := func(kind string) Registration {
			return registration(svc, "p", func(x *Registration) {
				x.Persistent = true
				if x.Check = nil; kind != "" {
					x.Check = &Check{Kind: kind}
				}
			})
		}
		r.put(svc, codeDone, item("e1", "", with("tcp")))
		if m := r.do("SMEMBERS", r.keys(svc).checked()); m.Error() != nil {
			t.Error(m.Error())
		}
		if code, err := r.verdict(bounded(t), svc, "p", "e1", false, "refused"); code != codeDone || err != nil {
			t.Fatal(code, err)
		}
		for _, kind := range []string{"http", ""} {
			r.put(svc, codeDone, item("e1", "", with(kind)))
			if h := r.instance(svc, "p"); h["checked"] != "" || h["failing_since"] != "" {
				t.Errorf("with check %q: %v", kind, h)
			}
		}
	})
}

// TestCleanupMany: calls of 200, until none is due.
func TestCleanupMany(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.fill(svc, 450)
		r.pass(svc, 3*time.Minute)
		r.do("HSET", r.keys(svc).record(svc), "guard_done", strconv.FormatInt(r.now(svc)-100_000, 10))
		for _, want := range []cleaned{{removed: 200, more: true}, {removed: 200, more: true}, {removed: 50}} {
			r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-31_000, 10))
			if want.removed != 200 || len(r.beats(svc)) != 450 {
				r.pass(svc, 0)
			}
			if got, err := r.cleanup(bounded(t), svc); (cleaned{removed: got.removed, more: got.more, guard: got.guard}) != want || err != nil {
				t.Fatalf("%+v, %v, expected %+v", got, err, want)
			}
		}
		if h := r.record(svc); h["why"] != WhyExpired || h["revision"] != strconv.Itoa(8+3) || r.listed(svc) {
			t.Errorf(`%v; want h["why"] == WhyExpired, h["revision"] == strconv.Itoa(8+3), not r.listed(svc)`, h)
		}
		// cleanupAll does so by itself.
		r.fill(svc, 450)
		r.pass(svc, 3*time.Minute)
		k := r.keys(svc)
		r.do("HSET", k.record(svc), "cleaned", strconv.FormatInt(r.now(svc)-31_000, 10), "guard_done", strconv.FormatInt(r.now(svc)-100_000, 10))
		if got, err := r.cleanupAll(bounded(t), svc); got.removed != 450 || got.more || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestCleanupOverrides: overrides that end together end by events of 20 instances, at once.
func TestCleanupOverrides(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.fill(svc, 45)
		for i := range 45 {
			if _, err := r.override(bounded(t), svc, fmt.Sprintf("i%d", i), &Override{Author: "eve"}, time.Hour, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(svc, time.Hour+time.Second)
		r.alive(svc, 0, 45)
		r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-31_000, 10))
		heard := r.hear(r.keys(svc).change(svc))
		if got, err := r.cleanupAll(bounded(t), svc); got.removed != 0 || got.more || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
		for _, want := range []int{20, 20, 5} {
			if e := receive(t, heard); e.Reason != "override" || len(e.Entries) != want {
				t.Errorf("%s of %d instances, expected %d", e.Reason, len(e.Entries), want)
			}
		}
		if got := r.hash(r.keys(svc).overrides(svc)); len(got) != 0 {
			t.Errorf("%v; want len(got) == 0", got)
		}
	})
}

// TestCleanupGrace: after a gap of cleanups, or a jump of the clock, nothing is due for one limit.
func TestCleanupGrace(t *testing.T) {
	for name, jump := range map[string]time.Duration{"gap": 80 * time.Second, "put back": -80 * time.Second} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				r.fill(svc, 10)
				r.do("ZADD", r.keys(svc).heartbeats(svc), strconv.FormatInt(r.now(svc)-300_000, 10), "i0")
				r.pass(svc, jump)
				cleanup := func(want int) {
					t.Helper()
					if got, err := r.cleanup(bounded(t), svc); got.removed != want || got.guard != "" || err != nil {
						t.Errorf(`%+v, %v; %v; want got.removed == %v, got.guard == "", no error`, got, err, r.record(svc), want)
					}
				}
				cleanup(0)
				now := r.now(svc)
				for id, score := range r.beats(svc) {
					if score > now {
						t.Errorf("%s is %d ms ahead", id, score-now)
					}
				}
				for range 3 { // by the interval, as it must be
					r.pass(svc, 35*time.Second)
					r.alive(svc, 1, 10)
					cleanup(0)
				}
				r.pass(svc, 35*time.Second)
				r.alive(svc, 1, 10)
				cleanup(1)
			})
		})
	}
}

// TestGuard: it begins, holds, ends by time, and never covers the same instances again.
func TestGuard(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const n = 10
		r.fill(svc, n)
		step, wantGuard := r.guarded(n)
		wantGuard(step(62*time.Second, 4), "")
		wantGuard(step(62*time.Second, 4), "4 of 10 instances fell silent or failed their checks together")
		wantGuard(step(186*time.Second, 4), "4 of 10")
		// Two limits after its beginning, what it covered goes.
		if got := step(93*time.Second, 4); got.removed != 4 || got.guard != "" || len(r.beats(svc)) != 6 {
			t.Errorf(`%+v; %v; want got.removed == 4, got.guard == "", len(r.beats(svc)) == 6`, got, r.record(svc))
		}
		// The rest falls silent: another guard, since these were not covered.
		wantGuard(step(93*time.Second, n), "")
		wantGuard(step(62*time.Second, n), "6 of 6")
		// They come back, and the guard is over at once.
		if got := step(31*time.Second, 4); got.guard != "" || got.removed != 0 || len(r.beats(svc)) != 6 {
			t.Errorf(`%+v; %v; want got.guard == "", got.removed == 0, len(r.beats(svc)) == 6`, got, r.record(svc))
		}
		wantGuard(step(124*time.Second, n), "6 of 6")
		if got := step(310*time.Second, n); got.removed != 6 || r.record(svc)["why"] != WhyExpired {
			t.Errorf(`%+v; %v; want got.removed == 6, r.record(svc)["why"] == WhyExpired`, got, r.record(svc))
		}
	})
}

// TestGuardShortened: a guard that seems to last too long is shortened. It does not end, because what
// it covers would be removed for good.
func TestGuardShortened(t *testing.T) {
	t.Parallel()
	limit := time.Minute
	for name, shorten := range map[string]func(r *rig){
		"clock put back": func(r *rig) { r.pass(svc, -20*time.Second) },
		"smaller limit": func(r *rig) {
			if err := (&Store{r.conn}).SetCleanup(bounded(r.t), svc, &limit, nil); err != nil {
				r.t.Fatal(err)
			}
		},
		"shorter longest interval": func(r *rig) { r.remove(svc, reasonDeregistered, deregisterItem{"slow", "e1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				r.fill(svc, 10)
				slow := name == "shorter longest interval"
				if slow {
					r.put(svc, codeDone, item("e1", "", registration(svc, "slow", func(x *Registration) { x.Interval = time.Minute })))
				}
				r.clean(svc)
				for range 20 {
					r.pass(svc, 10*time.Second)
					r.alive(svc, 5, 10)
					if slow {
						r.beat(svc, beatItem{id: "slow", epoch: "e1"})
					}
					if got := r.clean(svc); got.removed != 0 {
						t.Fatalf("%+v; want got.removed == 0", got)
					} else if got.guard != "" {
						break
					}
				}
				before := r.record(svc)["guard_until"]
				if before == "" {
					t.Fatal("there is no guard")
				}
				shorten(r)
				for range 3 { // longest becomes shorter by the first one
					r.alive(svc, 5, 10)
					if got := r.clean(svc); got.removed != 0 || !strings.HasPrefix(got.guard, "5 of 1") {
						t.Errorf(`%+v; %v; want got.removed == 0, strings.HasPrefix(got.guard, "5 of 1")`, got, r.record(svc))
					}
				}
				h := r.record(svc)
				if h["guard_until"] >= before && name != "clock put back" || !strings.Contains(h["guard_why"], "before "+h["guard_until"]+" ") || h["guard_done"] != "" {
					t.Errorf("guard until %s, then %v", before, h)
				}
			})
		})
	}
}

// TestGuardAgain: while others are guarded, what an earlier guard has covered is removed.
func TestGuardAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const n = 10
		r.fill(svc, n)
		step, wantGuard := r.guarded(n)
		wantGuard(step(217*time.Second, 4), "4 of 10")
		wantGuard(step(124*time.Second, 9), "4 of 10")
		if got := step(31*time.Second, 9); got.removed != 4 || !strings.HasPrefix(got.guard, "5 of 10") {
			t.Errorf(`%+v; %v; want got.removed == 4, strings.HasPrefix(got.guard, "5 of 10")`, got, r.record(svc))
		}
		if got := step(279*time.Second, 9); got.removed != 5 || got.guard != "" {
			t.Errorf(`%+v; %v; want got.removed == 5, got.guard == ""`, got, r.record(svc))
		}
	})
}

// guarded are step, which lets time pass in steps of cleanups, with live instances from live to
// n-1, and a check of what it returns.
func (r *rig) guarded(n int) (step func(d time.Duration, live int) cleaned, wantGuard func(got cleaned, want string)) {
	step = func(d time.Duration, live int) (got cleaned) {
		r.t.Helper()
		for ; d > 0; d -= 31 * time.Second {
			r.pass(svc, min(d, 31*time.Second))
			r.alive(svc, live, n)
			removed := got.removed
			var err error
			if got, err = r.cleanupAll(bounded(r.t), svc); err != nil {
				r.t.Fatal(err)
			}
			got.removed += removed
		}
		return got
	}
	wantGuard = func(got cleaned, want string) {
		r.t.Helper()
		if got.removed != 0 || want == "" && got.guard != "" || !strings.HasPrefix(got.guard, want) || guardText(r.record(svc)["guard_why"]) != got.guard {
			r.t.Errorf("%+v, expected %q; %v", got, want, r.record(svc))
		}
	}
	return step, wantGuard
}

// TestGuardWave: instances that fall silent together are not due at one moment. A cleanup between
// them removes none.
func TestGuardWave(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.fill(svc, 10)
		for i := range 4 { // they were to be due 5 s apart
			r.do("ZADD", r.keys(svc).heartbeats(svc), strconv.FormatInt(r.now(svc)-121_000+int64(i)*5000, 10), fmt.Sprintf("i%d", i))
		}
		if got := r.clean(svc); got.removed != 0 || got.guard == "" {
			t.Errorf(`%+v; want got.removed == 0, got.guard != ""`, got)
		}
	})
}

// TestGuardNot: one instance, and 30 % of them, are removed without a guard.
func TestGuardNot(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.fill(svc, 10)
		r.fill("single", 1)
		for _, service := range []string{svc, "single"} {
			r.pass(service, 125*time.Second)
		}
		r.alive(svc, 3, 10)
		if got := r.clean(svc); got.removed != 3 || got.guard != "" {
			t.Errorf(`%+v; want got.removed == 3, got.guard == ""`, got)
		}
		if got := r.clean("single"); got.removed != 1 || got.guard != "" {
			t.Errorf(`%+v; want got.removed == 1, got.guard == ""`, got)
		}
	})
}
