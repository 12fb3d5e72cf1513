package healthcheck

import (
	"testing"

	"pgregory.net/rapid"
)

// twin decides the same, slowly, by all outcomes so far.
type twin struct {
	rise, fall int
	begun      bool // as healthy
	outcomes   []bool
}

// replay reports whether the service is healthy after all outcomes, and whether the first failure
// of a service that never was healthy has been reported.
func (w *twin) replay() (healthy, told bool) {
	healthy, ever := w.begun, w.begun
	since := 0 // the outcomes before it are used up by the last change
	for i, ok := range w.outcomes {
		run := 0
		for j := i; j >= since && w.outcomes[j] != healthy; j-- {
			run++
		}
		switch {
		case healthy && run >= w.fall, !healthy && ok && (!ever || run >= w.rise):
			healthy, ever, since = !healthy, true, i+1
		case !ever && !ok:
			told = true
		}
	}
	return healthy, told
}

// TestStateAgreesWithTwin: after any outcomes, with any thresholds.
func TestStateAgreesWithTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := twin{rise: rapid.IntRange(1, 5).Draw(t, "rise"), fall: rapid.IntRange(1, 5).Draw(t, "fall"), begun: rapid.Bool().Draw(t, "begun")}
		s := newState(w.rise, w.fall, w.begun)
		for _, ok := range rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "outcomes") {
			was, wasTold := w.replay()
			w.outcomes = append(w.outcomes, ok)
			is, told := w.replay()
			want := unchanged
			switch {
			case is && !was:
				want = rose
			case was && !is, told && !wasTold:
				want = fell
			}
			if got := s.observe(ok); got != want || s.healthy != is {
				t.Fatalf("after %v: change %d and healthy %v, expected %d and %v", w.outcomes, got, s.healthy, want, is)
			}
		}
	})
}

func TestState(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		healthy  bool
		outcomes string // + and -
		want     string // what each changes: r, f or .
	}{
		"one success is enough at first":  {false, "+", "r"},
		"also after failures, told once":  {false, "----+", "f...r"},
		"three failures in a row":         {true, "--+--+---", "........f"},
		"two successes in a row":          {true, "---+-+-++", "..f.....r"},
		"a service that begins as well":   {true, "+--", "..."},
		"down again after it has come up": {false, "-+---++", "fr..f.r"},
	} {
		s := newState(2, 3, test.healthy)
		got := ""
		for _, o := range test.outcomes {
			got += map[change]string{unchanged: ".", rose: "r", fell: "f"}[s.observe(o == '+')]
		}
		if got != test.want {
			t.Errorf("%s: %s makes %s, expected %s", name, test.outcomes, got, test.want)
		}
	}
}
