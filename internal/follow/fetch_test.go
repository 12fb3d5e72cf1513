package follow

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A copy follows a log of numbers by a Fetch, as slowly and plainly as can be: the number at index
// i came with revision i+1.
type logCopy struct {
	t     *rapid.T
	fetch Fetch[int, int] // a page is the revision after which it begins; an event is a revision
	log   *[]int
	have  []int
}

func (c *logCopy) event(revision int) {
	switch {
	case !c.fetch.Idle():
		c.fetch.Hold(revision)
	case revision <= len(c.have):
	case revision == len(c.have)+1:
		c.have = append(c.have, (*c.log)[revision-1])
	default:
		c.fetch.Begin(len(c.have), 0)
	}
}

// page is at most two numbers after a revision, and whether there are more, as the log is now.
func (c *logCopy) page(after int) (numbers []int, more bool) {
	rest := (*c.log)[after:]
	n := min(2, len(rest))
	return slices.Clone(rest[:n]), n < len(rest)
}

func (c *logCopy) answered(number uint64, numbers []int, more bool) {
	after, ok := c.fetch.Answered(number)
	if !ok {
		return
	}
	if after != len(c.have) {
		c.t.Fatalf("the answered page begins after %d, expected %d", after, len(c.have))
	}
	if c.have = append(c.have, numbers...); more {
		c.fetch.Begin(len(c.have), 0)
		return
	}
	if c.fetch.Replay(c.event) {
		c.fetch.Begin(len(c.have), 0)
	}
}

// TestFetchFollows: whatever is lost, late, repeated or fails, the copy is a beginning of the log.
// In the end it is the log, if the newest event came or a page was begun after it.
func TestFetchFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var log []int
		c := &logCopy{t: t, log: &log}
		var queue []int       // events on their way
		var now time.Duration // of the calls of Fetch
		var underWay []func() // answers and failures, of older pages, too
		fetch := func(t *rapid.T) {
			after, number, ok := c.fetch.Take(now)
			if !ok {
				return
			}
			fails := t != nil && rapid.IntRange(0, 3).Draw(t, "fails") == 0
			numbers, more := c.page(after)
			underWay = append(underWay, func() {
				if fails {
					c.fetch.Failed(number, now)
					return
				}
				c.answered(number, numbers, more)
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				log = append(log, rapid.Int().Draw(t, "number"))
				queue = append(queue, len(log))
			},
			"event": func(t *rapid.T) {
				if len(queue) == 0 {
					t.Skip("no event")
				}
				e := queue[0]
				if rapid.IntRange(0, 4).Draw(t, "repeated") > 0 {
					queue = queue[1:]
				}
				if rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
					c.event(e)
				}
			},
			"fetch": fetch,
			"answer": func(t *rapid.T) {
				if len(underWay) == 0 {
					t.Skip("nothing is under way")
				}
				i := rapid.IntRange(0, len(underWay)-1).Draw(t, "which")
				answer := underWay[i]
				underWay = slices.Delete(underWay, i, i+1)
				answer()
			},
			"begin": func(*rapid.T) { c.fetch.Begin(len(c.have), now) },
			"time":  func(t *rapid.T) { now += time.Duration(rapid.IntRange(1, 1000).Draw(t, "ms")) * time.Millisecond },
			"": func(t *rapid.T) {
				if len(c.have) > len(log) || !slices.Equal(c.have, log[:len(c.have)]) {
					t.Fatalf("the copy is %v, expected a beginning of %v", c.have, log)
				}
			},
		})
		c.fetch.Begin(len(c.have), now)
		for !c.fetch.Idle() {
			fetch(nil)
			for _, answer := range underWay {
				answer()
			}
			underWay = nil
		}
		if !slices.Equal(c.have, log) {
			t.Fatalf("the copy is %v in the end, expected %v", c.have, log)
		}
	})
}

// TestFetchOverflow: what does not fit among the held events is fetched.
func TestFetchOverflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		held   int
		missed bool
	}{{heldLimit, false}, {heldLimit + 1, true}} {
		var f Fetch[struct{}, int]
		f.Begin(struct{}{}, 0)
		f.Hold(-1) // before the page is fetched, so of no use
		_, number, _ := f.Take(0)
		for i := range c.held {
			f.Hold(i)
		}
		if _, ok := f.Answered(number); !ok {
			t.Fatal("the answer was refused, expected it to be taken")
		}
		next := 0
		missed := f.Replay(func(e int) {
			if e != next {
				t.Fatalf("event %d, expected %d", e, next)
			}
			next++
		})
		if missed != c.missed || next != heldLimit {
			t.Errorf("%d events held: %d replayed, missed %t, expected %d and %t", c.held, next, missed, heldLimit, c.missed)
		}
	}
}

// TestFetchRetries: the wait after failures grows, ends with an answer, and can be cut short.
func TestFetchRetries(t *testing.T) {
	t.Parallel()
	var f Fetch[string, int]
	f.Begin("a", 0)
	now := time.Duration(0)
	for _, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		_, number, ok := f.Take(now)
		if !ok {
			t.Fatalf("no page is due at %s, expected one", now)
		}
		f.Failed(number, now)
		f.Failed(number, now) // counts once
		at, ok := f.Due()
		if !ok || at-now != want*time.Millisecond {
			t.Fatalf("due %t after %s, expected after %d ms", ok, at-now, want)
		}
		now = at
	}
	f.Begin("b", now+time.Hour)
	f.Hasten(now)
	page, number, ok := f.Take(now)
	if !ok || page != "b" {
		t.Fatalf("page %q, %t, expected b", page, ok)
	}
	if _, ok := f.Answered(number - 1); ok {
		t.Error("the answer of an earlier page was taken, expected it to be ignored")
	}
	f.Answered(number)
	f.Begin("c", now+time.Hour)
	f.Hasten(now)
	if at, _ := f.Due(); at != now+time.Hour {
		t.Errorf("due at %s after a success, expected %s", at, now+time.Hour)
	}
}
