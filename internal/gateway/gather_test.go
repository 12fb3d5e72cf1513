package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gathers is a gather whose calls take a second, and what they were of.
func gathers(wait time.Duration, fit int) (g *gather[int, string], calls *[][]int) {
	calls = new([][]int)
	return &gather[int, string]{
		fit: func(in []int) int { return min(fit, len(in)) }, full: fit, wait: wait,
		call: func(in []int) (out []string, err error) {
			*calls = append(*calls, slices.Clone(in)) // one at a time, which the race detector checks
			time.Sleep(time.Second)
			for _, n := range in {
				if n < 0 {
					return nil, errors.New("refused")
				}
				out = append(out, fmt.Sprint(n))
			}
			return out, nil
		},
	}, calls
}

// TestGather: what comes during a call shares the next ones, in the order of arrival; each gets its own
// outcome, and one that leaves is in no call.
func TestGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, calls := gathers(0, 3)
		var all sync.WaitGroup
		come := func(ctx context.Context, n int, want error) {
			all.Go(func() {
				out, err := g.do(ctx, n, false)
				if (want == nil) != (err == nil) || want == nil && out != fmt.Sprint(n) {
					t.Errorf("%d: %q, %v; want (want == nil) == (err == nil), want != nil or out == fmt.Sprint(n)", n, out, err)
				}
			})
			synctest.Wait()
		}
		brief, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		come(t.Context(), 1, nil)
		come(brief, 2, context.DeadlineExceeded)
		for n := 3; n <= 5; n++ {
			come(t.Context(), n, nil)
		}
		come(t.Context(), 6, errors.New("refused")) // with the next one
		come(t.Context(), -7, errors.New("refused"))
		all.Wait()
		if got := fmt.Sprint(*calls); got != "[[1] [3 4 5] [6 -7]]" {
			t.Errorf("calls of %s", got)
		}
		if g.queue != nil || g.led || g.calling > 0 {
			t.Error("not idle")
		}
	})
}

// TestGatherWaits: the first waits for others, until there are enough, one is urgent, or its time is over.
func TestGatherWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		come  func(g *gather[int, string], ctx context.Context)
		after time.Duration
		items int
	}{
		"alone":  {func(*gather[int, string], context.Context) {}, 50 * time.Millisecond, 1},
		"two":    {func(g *gather[int, string], ctx context.Context) { _, _ = g.do(ctx, 2, false) }, 50 * time.Millisecond, 2},
		"urgent": {func(g *gather[int, string], ctx context.Context) { _, _ = g.do(ctx, 2, true) }, 20 * time.Millisecond, 2},
		"hurry":  {func(g *gather[int, string], _ context.Context) { g.hurry() }, 20 * time.Millisecond, 1},
		"full": {func(g *gather[int, string], ctx context.Context) {
			var two sync.WaitGroup
			two.Go(func() { _, _ = g.do(ctx, 2, false) })
			two.Go(func() { _, _ = g.do(ctx, 3, false) })
			two.Wait()
		}, 20 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, calls := gathers(50*time.Millisecond, 3)
				var others sync.WaitGroup
				others.Go(func() {
					time.Sleep(20 * time.Millisecond)
					c.come(g, t.Context())
				})
				begin := time.Now()
				if out, err := g.do(t.Context(), 1, false); err != nil || out != "1" {
					t.Errorf(`%q, %v; want no error, out == "1"`, out, err)
				}
				if took := time.Since(begin); took != c.after+time.Second || len((*calls)[0]) != c.items {
					t.Errorf("a call of %d began after %s, expected %d after %s", len((*calls)[0]), took-time.Second, c.items, c.after)
				}
				others.Wait()
				// The next one that is urgent goes at once.
				begin = time.Now()
				if _, err := g.do(t.Context(), 9, true); err != nil || time.Since(begin) != time.Second {
					t.Errorf("an urgent one took %s, %v", time.Since(begin), err)
				}
			})
		})
	}
}

// TestGatherFullCalls: while a call takes long, full ones go beside it, and what is less waits.
func TestGatherFullCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan string, 9)
		begin := time.Now()
		g := &gather[int, int]{
			fit: func(in []int) int { return min(3, len(in)) }, full: 3, wait: 50 * time.Millisecond, more: 2,
			call: func(in []int) ([]int, error) {
				calls <- fmt.Sprintf("%d at %s", len(in), time.Since(begin))
				time.Sleep(time.Second)
				return slices.Clone(in), nil
			},
		}
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				if out, err := g.do(t.Context(), n, true); err != nil || out != n {
					t.Errorf("%d: %d, %v; want no error, out == %v", n, out, err, n)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		close(calls)
		var got []string
		for call := range calls {
			got = append(got, call)
		}
		if want := []string{"1 at 0s", "3 at 0s", "3 at 0s", "3 at 1s", "2 at 2s"}; !slices.Equal(got, want) {
			t.Errorf("calls of %q, expected %q", got, want)
		}
		if g.queue != nil || g.led || g.calling > 0 {
			t.Error("not idle")
		}
	})
}

// TestGatherLeaderLeaves: a request that gives up hands on the duty to make the call.
func TestGatherLeaderLeaves(t *testing.T) {
	t.Parallel()
	for range 1000 {
		g := &gather[int, int]{
			fit:  func(in []int) int { return min(2, len(in)) },
			call: func(in []int) ([]int, error) { return slices.Clone(in), nil },
		}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if n%2 > 0 {
					all.Go(cancel)
				} else {
					defer cancel()
				}
				if out, err := g.do(ctx, n, false); n%2 == 0 && (err != nil || out != n) || err == nil && out != n {
					t.Errorf("%d: %d, %v; want n%%2 != 0 or (no error and out == %v), an error or out == %v", n, out, err, n, n)
				}
			})
		}
		all.Wait()
	}
}

// TestGatherOfMany: what is behind those that a call may have costs the call nothing.
func TestGatherOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, calls := gathers(0, mostTogether)
		fit, most := g.fit, 0
		g.fit = func(in []int) int {
			most = max(most, len(in))
			return fit(in)
		}
		var all sync.WaitGroup
		for n := range 10 * mostTogether {
			all.Go(func() {
				if out, err := g.do(t.Context(), n, false); err != nil || out != fmt.Sprint(n) {
					t.Errorf("%d: %q, %v; want no error, out == fmt.Sprint(n)", n, out, err)
				}
			})
			if n == 0 {
				synctest.Wait()
			}
		}
		all.Wait()
		if most != mostTogether || len(*calls) != 11 {
			t.Errorf("%d calls, which looked at %d requests", len(*calls), most)
		}
	})
}
