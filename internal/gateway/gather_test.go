package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gathers is a gather whose calls take a second and refuse negative numbers, with what its calls were
// of, and what became of each request.
type gathers struct {
	gather[int, string]
	begin time.Time

	mu       sync.Mutex // guards what follows
	made     []string
	outcomes map[int]string
	under    int
}

func newGathers(fit int) *gathers {
	g := &gathers{begin: time.Now(), outcomes: map[int]string{}}
	g.fit, g.full = func(in []int) int { return min(fit, len(in)) }, fit
	g.call = func(in []int) (out []string, err error) {
		g.note(func() {
			g.made = append(g.made, fmt.Sprint(in, " at ", time.Since(g.begin)))
			g.under++
		})
		time.Sleep(time.Second)
		g.note(func() { g.under-- })
		for _, n := range in {
			if n < 0 {
				return nil, errors.New("refused")
			}
			out = append(out, fmt.Sprint(n))
		}
		return out, nil
	}
	g.done = func(in []int, out []string, err error) {
		g.note(func() {
			for i, n := range in {
				if g.outcomes[n] != "" {
					panic(fmt.Sprintf("%d had the outcome %s before", n, g.outcomes[n]))
				}
				if g.outcomes[n] = fmt.Sprint(err); err == nil {
					g.outcomes[n] = out[i]
				}
			}
		})
	}
	return g
}

func (g *gathers) note(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// come is an add after which everything that it causes at once has happened.
func (g *gathers) come(urgent bool, in ...int) {
	g.add(time.Now(), urgent, in...)
	synctest.Wait()
}

// ends waits until nothing is under way, and compares the calls and outcomes.
func (g *gathers) ends(t *testing.T, calls []string, outcomes map[int]string) {
	t.Helper()
	g.rest()
	for n, got := range g.outcomes {
		if want, ok := outcomes[n]; ok && got != want || !ok && got != fmt.Sprint(n) {
			t.Errorf("%d: %s, expected %q, or itself if that is empty", n, got, want)
		}
	}
	if !slices.Equal(g.made, calls) {
		t.Errorf("calls of %q, expected %q", g.made, calls)
	}
	if g.queue != nil || g.starting || len(g.calls) > 0 {
		t.Error("not idle")
	}
}

// TestGather: what comes during a call shares the next ones, in the order of arrival; each gets its own
// outcome, and one that is late is in no call.
func TestGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathers(3)
		g.patience = 10 * time.Second
		g.come(false, 1)
		g.add(time.Now().Add(-9*time.Second-500*time.Millisecond), false, 2)
		for n := 3; n <= 5; n++ {
			g.come(false, n)
		}
		g.come(false, 6, -7)
		g.ends(t, []string{"[1] at 0s", "[3 4 5] at 1s", "[6 -7] at 2s"}, map[int]string{2: errLate.Error(), 6: "refused", -7: "refused"})
		if len(g.outcomes) != 7 {
			t.Errorf("%d of 7 outcomes", len(g.outcomes))
		}
	})
}

// TestGatherWaits: the first waits for others, until there are enough, one is urgent, or its time is over.
func TestGatherWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		come func(g *gathers)
		want string
	}{
		"alone":  {func(*gathers) {}, "[1] at 50ms"},
		"two":    {func(g *gathers) { g.come(false, 2) }, "[1 2] at 50ms"},
		"urgent": {func(g *gathers) { g.come(true, 2) }, "[1 2] at 20ms"},
		"hurry":  {func(g *gathers) { g.hurry() }, "[1] at 20ms"},
		"full":   {func(g *gathers) { g.come(false, 2, 3) }, "[1 2 3] at 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGathers(3)
				g.wait = 50 * time.Millisecond
				g.come(false, 1)
				time.Sleep(20 * time.Millisecond) // of the bubble's time
				c.come(g)
				time.Sleep(1980 * time.Millisecond)
				g.come(true, 9) // goes at once
				g.ends(t, []string{c.want, "[9] at 2s"}, nil)
			})
		})
	}
}

// TestGatherFullCalls: while a call takes long, full ones go beside it, and what is less waits.
func TestGatherFullCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathers(3)
		g.wait, g.more = 50*time.Millisecond, 2
		for n := range 12 {
			g.come(true, n)
		}
		g.ends(t, []string{"[0] at 0s", "[1 2 3] at 0s", "[4 5 6] at 0s", "[7 8 9] at 1s", "[10 11] at 2s"}, nil)
	})
}

// TestGatherLate: a request whose call takes too long has its outcome in time, and only one.
func TestGatherLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathers(3)
		g.patience = 600 * time.Millisecond
		g.come(false, 1)
		time.Sleep(500 * time.Millisecond) // of the bubble's time
		g.come(false, 2)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		g.note(func() {
			if len(g.outcomes) != 1 || g.outcomes[1] != errLate.Error() {
				t.Errorf("after 600ms the outcomes are %v", g.outcomes)
			}
		})
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		g.come(false, 3)
		g.ends(t, []string{"[1] at 0s", "[2] at 1s"}, map[int]string{1: errLate.Error(), 2: errLate.Error(), 3: errLate.Error()})
	})
}

// TestGatherOfMany: what is behind those that a call may have costs the call nothing.
func TestGatherOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGathers(mostTogether)
		fit, most := g.fit, 0
		g.fit = func(in []int) int {
			most = max(most, len(in))
			return fit(in)
		}
		g.come(false, 0)
		for n := range 10 * mostTogether {
			g.add(time.Now(), false, n+1)
		}
		g.rest()
		if most != mostTogether || len(g.made) != 11 || len(g.outcomes) != 10*mostTogether+1 {
			t.Errorf("%d calls, which looked at %d requests; %d outcomes", len(g.made), most, len(g.outcomes))
		}
	})
}

// TestGatherAnyhow: whatever comes when, each request has one outcome in time, and no more calls are
// under way than may be.
func TestGatherAnyhow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			g := newGathers(1 + random.IntN(5))
			g.more = random.IntN(3)
			g.wait = time.Duration(random.IntN(2)*random.IntN(800)) * time.Millisecond
			g.patience = time.Duration(random.IntN(2)*random.IntN(4000)) * time.Millisecond
			var began []time.Time
			for range 60 {
				begin := time.Now().Add(-time.Duration(random.IntN(2)*random.IntN(300)) * time.Millisecond)
				for range 1 + random.IntN(4) {
					g.add(begin, random.IntN(10) == 0, len(began))
					began = append(began, begin)
				}
				if random.IntN(10) == 0 {
					g.hurry()
				}
				time.Sleep(time.Duration(random.IntN(3)*random.IntN(500)) * time.Millisecond)
				synctest.Wait()
				g.note(func() {
					if g.under > g.more+1 {
						t.Fatalf("seed %d: %d calls are under way", seed, g.under)
					}
					for n, begin := range began {
						if late := g.patience > 0 && time.Since(begin) > g.patience; late && g.outcomes[n] == "" {
							t.Fatalf("seed %d: request %d has no outcome after %s", seed, n, time.Since(begin))
						}
					}
				})
			}
			time.Sleep(g.wait)
			synctest.Wait()
			g.rest()
			g.ends(t, g.made, g.outcomes)
			if len(g.outcomes) != len(began) {
				t.Fatalf("seed %d: %d of %d have an outcome", seed, len(g.outcomes), len(began))
			}
		})
	}
}
