package beat

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoopsShareBeats: loops with periods of their own wake a process four times a second together,
// and each keeps its period.
func TestLoopsShareBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 10 * time.Minute
		loops := []time.Duration{Period, Period, Period, time.Second, time.Second, 1900 * time.Millisecond, 5 * time.Second}
		type wake struct {
			loop int
			at   time.Time
		}
		begin := time.Now()
		wakes := make(chan wake)
		for i, period := range loops {
			go func() {
				for time.Since(begin) < lasts {
					time.Sleep(Pause(period*7/8 + rand.N(period/4)))
					wakes <- wake{loop: i, at: time.Now()}
				}
				wakes <- wake{loop: -1}
			}()
		}
		instants, counts := make(map[time.Time]bool), make([]int, len(loops))
		for left := len(loops); left > 0; {
			if w := <-wakes; w.loop >= 0 {
				instants[w.at] = true
				counts[w.loop]++
			} else {
				left--
			}
		}
		if got, most := len(instants), int(lasts/Period)+10; got > most {
			t.Errorf("%d instants in %s, expected at most %d", got, lasts, most)
		}
		for i, period := range loops {
			if got, want := counts[i], int(lasts/period); got < want*95/100 || got > want*105/100 {
				t.Errorf("a loop of %s ran %d times in %s, expected about %d", period, got, lasts, want)
			}
		}
	})
}

// TestPause: a pause is close to what was asked for, and never over at once.
func TestPause(t *testing.T) {
	for range 100_000 {
		b, now, d := beats(rand.Uint64()), time.Unix(0, rand.Int64N(2e18)), rand.N(time.Minute)
		got := b.pause(now, d)
		if d < Period*3/4 && got != d {
			t.Fatalf("a pause of %s became %s", d, got)
		}
		if diff := (got - d).Abs(); diff > Period*2/3 || got < 0 {
			t.Fatalf("at %d a pause of %s became %s", now.UnixNano(), d, got)
		}
	}
}

// TestProcessesDiffer: two processes do not share their beats, even if they began together.
func TestProcessesDiffer(t *testing.T) {
	const period = uint64(Period)
	a, b := beats(7*period+11), beats(8*period+11)
	if a.phase() != b.phase() {
		t.Fatalf("the rows begin at %s and %s, expected the same", a.phase(), b.phase())
	}
	near := 0
	const rounds = 10_000
	now := time.Unix(1_700_000_000, 0)
	for range rounds {
		now = now.Add(Period)
		if (a.pause(now, Period) - b.pause(now, Period)).Abs() < time.Millisecond {
			near++
		}
	}
	if near > rounds/20 {
		t.Errorf("%d of %d beats are within 1 ms", near, rounds)
	}
}
