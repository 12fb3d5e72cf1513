package worker

import (
	"testing"
	"time"
)

// learned is what decides after many jobs and reports that took as long.
func learned(run, trip time.Duration) *ahead {
	a := &ahead{}
	for range 200 {
		a.ran(run)
		a.answered(trip)
	}
	return a
}

func TestAheadSlots(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		a        *ahead
		of, want int
	}{
		"nothing known":             {&ahead{}, 4, 0},
		"no report answered":        {learned(10*time.Millisecond, 0), 4, 0},
		"short jobs":                {learned(10*time.Millisecond, time.Millisecond), 1, 1},
		"many slots":                {learned(10*time.Millisecond, time.Millisecond), 64, 7},
		"shorter than a trip":       {learned(100*time.Microsecond, time.Millisecond), 4, 4},
		"not worth it":              {learned(time.Second, time.Millisecond), 4, 0},
		"worth it, and too long":    {learned(100*time.Millisecond, time.Millisecond), 1, 0},
		"as long, on several slots": {learned(100*time.Millisecond, time.Millisecond), 4, 1},
		"no slots":                  {learned(10*time.Millisecond, time.Millisecond), 0, 0},
		"trips without end":         {learned(10*time.Millisecond, time.Hour), 1, 1},
	} {
		if got := c.a.slots(c.of, now); got != c.want {
			t.Errorf("%s: %d slots ahead of %d, expected %d", name, got, c.of, c.want)
		}
	}
	off := learned(10*time.Millisecond, time.Millisecond)
	off.off = true
	if got := off.slots(1, now); got != 0 {
		t.Errorf("switched off: %d", got)
	}
}

// TestAheadHeedsLongOnes: one long job among short ones ends it at once, many short ones bring it back.
func TestAheadHeedsLongOnes(t *testing.T) {
	t.Parallel()
	a, now := learned(10*time.Millisecond, time.Millisecond), time.Now()
	a.ran(time.Second)
	if got := a.slots(1, now); got != 0 {
		t.Errorf("%d slots ahead behind a long job", got)
	}
	for range 100 {
		a.ran(10 * time.Millisecond)
	}
	if got := a.slots(1, now); got != 1 {
		t.Errorf("%d slots ahead after short ones", got)
	}
}

func TestAheadPatience(t *testing.T) {
	t.Parallel()
	a, now := learned(10*time.Millisecond, time.Millisecond), time.Now()
	if got := a.patience(now, slotPatience); got != slotPatience {
		t.Errorf("%s before any was asked for", got)
	}
	a.slots(1, now)
	if got := a.patience(now.Add(aheadMemory/2), slotPatience); got != aheadPatience {
		t.Errorf("%s while some are ahead", got)
	}
	if got := a.patience(now, time.Millisecond); got != time.Millisecond {
		t.Errorf("%s, more than without", got)
	}
	if got := a.patience(now.Add(2*aheadMemory), slotPatience); got != slotPatience {
		t.Errorf("%s long after", got)
	}
}
