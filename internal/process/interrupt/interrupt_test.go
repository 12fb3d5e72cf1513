package interrupt

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSteps: what comes within a second of a signal belongs to that signal.
func TestSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 8)
		done := 0
		step := func() { done++ }
		ended := make(chan struct{})
		go func() { defer close(ended); Steps(signals, step, step, step) }()
		for _, s := range []struct {
			pause time.Duration
			want  int
		}{
			{0, 1},
			{0, 1},
			{time.Millisecond, 1},
			{Gap - 2*time.Millisecond, 1},
			{time.Millisecond, 2}, // a second after the first, whatever came between
			{Gap - 1, 2},
			{1, 3},
		} {
			time.Sleep(s.pause)
			signals <- syscall.SIGTERM
			synctest.Wait()
			if done != s.want {
				t.Fatalf("%d steps after another %s, expected %d", done, s.pause, s.want)
			}
		}
		<-ended
	})
}
