package dispatch

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever happens to a job, it stays enqueued once it is, and only a call of unknown outcome is
// repeated, until it is answered.
func TestStages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := new(placement)
		enqueued, unknown, chosen := false, false, false
		t.Repeat(map[string]func(*rapid.T){
			"enqueue":  func(*rapid.T) { p.enqueue(); enqueued, chosen = true, false },
			"unknown":  func(*rapid.T) { p.outcomeUnknown(errAway); unknown, chosen = true, false },
			"answered": func(*rapid.T) { p.answered(); unknown, chosen = false, false },
			"alike": func(t *rapid.T) {
				if enqueued || unknown || chosen {
					t.Skip("only a new job is chosen for together with others")
				}
				p.mayJoin()
				if p.leave(); rapid.Bool().Draw(t, "joins") {
					p.join()
					chosen = true
				}
			},
			"useChoice": func(t *rapid.T) {
				if got := p.useChoice(); got != chosen {
					t.Fatalf("uses a choice: %t, want %t", got, chosen)
				}
				chosen = false
			},
			"": func(t *rapid.T) {
				if p.enqueues() != enqueued || p.repeats() != unknown {
					t.Fatalf("in stage %d: enqueues %t, want %t; repeats %t, want %t",
						p.stage, p.enqueues(), enqueued, p.repeats(), unknown)
				}
			},
		})
	})
}
