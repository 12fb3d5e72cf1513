package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// learned is what decides after many jobs and reports that took as long.
func learned(run, trip time.Duration) *ahead {
	a := &ahead{}
	for range 200 {
		a.ran(run)
		a.answered(trip, time.Now(), 0)
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
		"as long as a trip":         {learned(time.Millisecond, time.Millisecond), 4, 4},
		"shorter than a trip":       {learned(10*time.Millisecond, 17*time.Millisecond), 4, 7},
		"much shorter than a trip":  {learned(100*time.Microsecond, time.Millisecond), 4, 12},
		"no more than may wait":     {learned(20*time.Millisecond, 45*time.Millisecond), 1, 2},
		"not worth it":              {learned(200*time.Millisecond, 900*time.Microsecond), 4, 0},
		"longer than its patience":  {learned(300*time.Millisecond, 20*time.Millisecond), 64, 0},
		"worth it, and too long":    {learned(100*time.Millisecond, time.Millisecond), 1, 0},
		"as long, on several slots": {learned(100*time.Millisecond, time.Millisecond), 4, 1},
		"no slots":                  {learned(10*time.Millisecond, time.Millisecond), 0, 0},
		"trips without end":         {learned(10*time.Millisecond, time.Hour), 1, 3},
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
	later := now.Add(2 * aheadMemory)
	if got := a.patience(later, slotPatience); got != slotPatience {
		t.Errorf("%s long after", got)
	}
	a.answered(2*aheadMemory, later, 1)
	if got := a.patience(later, slotPatience); got != aheadPatience {
		t.Errorf("%s when the answer to the asking comes late", got)
	}
}

// answersLate is a cell whose answers to reports come after the jobs that they brought.
type answersLate struct {
	store
	answer chan struct{}
}

func (a *answersLate) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	outcome, err := a.store.Complete(ctx, comp)
	<-a.answer
	return outcome, err
}

// TestJobsAheadHaveRoom: with all that Redis can have granted at its end, and as many that came with the reports, whose
// answers are late, none is turned away: it would cost a heartbeat and a read.
func TestJobsAheadHaveRoom(t *testing.T) {
	const slots, granted = 2, 2 * (1 + cell.MaxAhead)
	var release, answer chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = slots }, func(t *testing.T, _ *Worker, f *fakeCell) {
		reads, job := 0, 0
		f.with(func() { f.onSpec = func() error { reads++; return nil } })
		assign := func() (ids []cell.Attempt) {
			for range granted {
				job++
				ids = append(ids, f.assign(job, freeslot.Job{Service: "s"}))
			}
			synctest.Wait()
			return ids
		}
		assign()
		for range granted {
			release <- struct{}{}
			synctest.Wait()
		}
		last := assign()
		close(answer)
		close(release)
		for _, id := range last {
			if comp := f.end(t, id); comp.State != freeslot.StateSucceeded {
				t.Errorf("%+v", comp)
			}
		}
		f.with(func() {
			if reads != 0 {
				t.Errorf("%d jobs were turned away when they arrived, and read again", reads)
			}
		})
	}, func(w *Worker) {
		release, answer = make(chan struct{}), make(chan struct{})
		wrap(func(s store) store { return &answersLate{s, answer} })(w)
		w.Handle("s", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}

// TestJobAheadIsHandedBackInTime: one whose slot does not come free in time goes back at once: Redis
// counts it, and gives its place here to nobody.
func TestJobAheadIsHandedBackInTime(t *testing.T) {
	var release chan struct{}
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 1 }, func(t *testing.T, w *Worker, f *fakeCell) {
		w.ahead.ran(time.Millisecond)
		w.ahead.answered(time.Millisecond, time.Now(), 0)
		f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		if w.ahead.slots(1, time.Now()) != 1 {
			t.Fatal("none is asked for ahead")
		}
		begun := time.Now()
		comp := f.end(t, f.assign(2, freeslot.Job{Service: "s"}))
		if took := time.Since(begun); comp.Again != cell.HandBack || took < aheadPatience || took > aheadPatience+fullPause {
			t.Errorf("%+v after %s, expected it to be handed back after %s", comp, took, aheadPatience)
		}
		close(release)
	}, func(w *Worker) {
		release = make(chan struct{})
		w.Handle("s", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}

// asks notes how many slots each report asks for ahead.
type asks struct {
	store
	ahead chan int
}

func (a *asks) Complete(ctx context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	a.ahead <- comp.Ahead
	return a.store.Complete(ctx, comp)
}

// TestDrainAsksForNoneAhead: a node that drains takes no more jobs, and its reports ask for none.
func TestDrainAsksForNoneAhead(t *testing.T) {
	var release chan struct{}
	var asked *asks
	bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 2 }, func(t *testing.T, w *Worker, f *fakeCell) {
		for range 200 {
			w.ahead.ran(time.Millisecond)
			w.ahead.answered(20*time.Millisecond, time.Now(), 0)
		}
		first, second := f.assign(1, freeslot.Job{Service: "s"}), f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		release <- struct{}{}
		before := <-asked.ahead
		w.ledger.drain()
		release <- struct{}{}
		if after := <-asked.ahead; before == 0 || after != 0 {
			t.Errorf("%d slots were asked for before the drain and %d in it", before, after)
		}
		f.end(t, first)
		f.end(t, second)
	}, func(w *Worker) {
		release = make(chan struct{})
		wrap(func(s store) store { asked = &asks{s, make(chan int)}; return asked })(w)
		w.Handle("s", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}
