package demand

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/dispatch"
)

// TestMeter: a replica tells rates per second, the busiest kinds first, and forgets silent kinds.
func TestMeter(t *testing.T) {
	t.Parallel()
	m := NewMeter()
	at := m.takenAt
	m.now = func() time.Time { return at }
	take := func(later time.Duration) []Told { at = at.Add(later); return m.Take() }
	asr, tts := dispatch.Kind{Pool: "gpu", Service: "asr"}, dispatch.Kind{Service: "tts"}
	m.Came(tts, 1)
	for range 20 {
		m.Came(asr, 3)
	}
	m.Ran(asr, 1500*time.Millisecond)
	want := []Told{
		{Pool: "gpu", Service: "asr", Came: 2, Slots: 6, Ended: 0.1, Ran: 0.15}, {Service: "tts", Came: 0.1, Slots: 0.1},
	}
	if got := take(10 * time.Second); !cmp.Equal(got, want) {
		t.Errorf("took %+v; want %+v", got, want)
	}
	m.Ran(tts, 4*time.Second)
	if got, want := take(2*time.Second), []Told{{Service: "tts", Ended: 0.5, Ran: 2}}; !cmp.Equal(got, want) {
		t.Errorf("took %+v; want %+v", got, want)
	}
	if n := m.kinds.Size(); n != 1 {
		t.Errorf("%d kinds are kept; want the one that was not silent", n)
	}
	for i := range mostMetered + 10 {
		m.Came(dispatch.Kind{Service: fmt.Sprint("s", i)}, 1)
	}
	if got := take(time.Second); len(got) != busiest || m.kinds.Size() != mostMetered-1 {
		t.Errorf("told of %d kinds, kept %d; want %d and %d", len(got), m.kinds.Size(), busiest, mostMetered-1)
	}
}
