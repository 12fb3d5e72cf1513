package lock

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLocal drives the waiters of one process and one lock at random. Each waiter is at one place;
// while some wait behind, one holds or contends; who becomes the contender is told, by join, by
// promote, or as the heir of a release; and the order of those that line up is kept.
func TestLocal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		l := &local{}
		var line []*acquisition // those behind, as they lined up
		var contender, holder *acquisition
		told := make(map[*acquisition]bool)
		number := uint64(0)
		newcomer := func() *acquisition {
			number++
			return newAcquisition(nil, Config{Key: "k"}.WithDefaults(), number, "h")
		}
		promoted := func(rt *rapid.T, a *acquisition) {
			select {
			case <-a.promoted:
				told[a] = true
			default:
				rt.Fatalf("%d contends and does not know it", a.number)
			}
		}
		next := func(rt *rapid.T) {
			if holder == nil && contender == nil && len(line) > 0 {
				contender, line = line[0], line[1:]
				promoted(rt, contender)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"join": func(rt *rapid.T) {
				a := newcomer()
				first := holder == nil && contender == nil
				if l.join(a) != first {
					rt.Fatalf("join: %v", !first)
				}
				if first {
					contender, told[a] = a, true
				} else {
					line = append(line, a)
				}
			},
			"contender takes": func(rt *rapid.T) {
				if contender == nil {
					rt.Skip()
				}
				l.took(contender)
				holder, contender = contender, nil // a holder before has lost it, and does not know yet
			},
			"newcomer takes": func(*rapid.T) {
				holder = newcomer()
				l.took(holder)
			},
			"waiter gives up": func(rt *rapid.T) {
				if len(line) == 0 {
					rt.Skip()
				}
				i := rapid.IntRange(0, len(line)-1).Draw(rt, "which")
				l.leave(line[i])
				line = slices.Delete(line, i, i+1)
			},
			"contender gives up": func(rt *rapid.T) {
				if contender == nil {
					rt.Skip()
				}
				l.leave(contender)
				contender = nil
				next(rt)
			},
			"holder loses it": func(rt *rapid.T) {
				if holder == nil {
					rt.Skip()
				}
				l.leave(holder)
				holder = nil
				next(rt)
			},
			"release": func(rt *rapid.T) {
				if holder == nil {
					rt.Skip()
				}
				heir, pass := l.heir(holder)
				want := contender
				if want == nil && len(line) > 0 {
					want, line = line[0], line[1:]
				}
				if heir != want || pass && heir == nil {
					rt.Fatalf("heir %v", heir)
				}
				l.leave(holder)
				holder, contender = nil, heir
				told[heir] = true
				if heir != nil {
					l.gave(released{others: rapid.Int64Range(0, 1).Draw(rt, "others")}, pass)
				}
			},
			"": func(rt *rapid.T) {
				if l.holder != holder || l.contender != contender || !slices.Equal(l.behind, line) {
					rt.Fatalf("holder %v, contender %v, behind %v", l.holder, l.contender, l.behind)
				}
				if len(line) > 0 && holder == nil && contender == nil {
					rt.Fatalf("%d wait, and nobody contends", len(line))
				}
				if contender != nil && !told[contender] {
					rt.Fatalf("%d contends and does not know it", contender.number)
				}
			},
		})
	})
}

// TestPassing: a process passes a lock among its waiters while no other one waits, and for passTime
// after one does.
func TestPassing(t *testing.T) {
	t.Parallel()
	l := &local{}
	a, b := newAcquisition(nil, Config{}.WithDefaults(), 1, "h"), newAcquisition(nil, Config{}.WithDefaults(), 2, "h")
	pass := func() bool {
		l.took(a)
		l.join(b)
		_, pass := l.heir(a)
		l.leave(b)
		return pass
	}
	for range 3 {
		if !pass() {
			t.Fatal("not passed, and nobody else waits")
		}
		l.gave(released{}, true)
	}
	l.gave(released{others: 1}, true)
	begun := l.passing
	if !pass() && uptime()-begun < passTime {
		t.Error("not passed at once")
	}
	for uptime()-begun < passTime { //nolint:revive // spinning is exact, and short
	}
	if pass() {
		t.Error("passed for too long")
	}
	if !pass() {
		t.Error("no new beginning")
	}
}
