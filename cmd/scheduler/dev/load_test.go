package dev

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

// TestLoadJob: every job is valid and short, and the load has a bit of everything.
func TestLoadJob(t *testing.T) {
	t.Parallel()
	var dead, retried, keyed int
	for n := range 100 {
		job := loadJob(n)
		if err := job.Validate("job"); err != nil {
			t.Fatal(err)
		}
		var w work
		if err := json.Unmarshal(job.Payload, &w); err != nil {
			t.Fatal(err)
		}
		if took := time.Duration(w.MS) * time.Millisecond; took < shortestJob || took > longestJob {
			t.Errorf("job %d takes %s; want %s to %s", n, took, shortestJob, longestJob)
		}
		switch w.Fails {
		case job.MaxAttempts:
			dead++
		case 1:
			retried++
		}
		if job.ConcurrencyKey != "" {
			keyed++
		}
	}
	if dead != 1 || retried != 10 || keyed != 6 {
		t.Errorf("100 jobs have %d dead, %d retried, %d with a key; want 1, 10 and 6", dead, retried, keyed)
	}
}

// TestDoWork: an attempt takes its time, and fails if it is one of the attempts that should.
func TestDoWork(t *testing.T) {
	t.Parallel()
	for attempt, fails := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			_, err := doWork(t.Context(), &worker.Job{Attempt: attempt, Payload: []byte(`{"ms":700,"fails":1}`)})
			if took := time.Since(begin); (err != nil) != fails || took != 700*time.Millisecond {
				t.Errorf("attempt %d ended after %s with %v; want an error: %t, after 700ms", attempt, took, err, fails)
			}
		})
	}
	if _, err := doWork(t.Context(), &worker.Job{Payload: freeslot.Job{}.Payload}); err == nil {
		t.Error("a job without a payload succeeded; want an error")
	}
}
