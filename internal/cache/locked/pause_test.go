package locked

import (
	"runtime"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// While another goroutine builds a list for a new configuration the former list is not used: a
// paused job must not start. For changed profiles the former list is used.
func TestPauseWaitsForTheList(t *testing.T) {
	t.Parallel()
	r := new(freeslot.Requirement)
	for _, step := range []struct {
		after *selection.Config
		waits bool
	}{
		{&selection.Config{Version: 2, Paused: &selection.Paused{Services: []string{"tts"}}}, true},
		{&selection.Config{Version: 1}, false},
	} {
		m := newMembers()
		m.of(&Snapshot{config: &selection.Config{Version: 1}, profiles: 1}, "tts", r, false)
		l, _ := m.list(class.Hash("tts", r), "tts", r)
		l.rebuild.Lock()
		after := &Snapshot{config: step.after, profiles: 2}
		got, begun := make(chan *selection.Class, 1), make(chan struct{})
		go func() { close(begun); got <- m.of(after, "tts", r, false) }()
		<-begun
		if !step.waits {
			if v := (<-got).ConfigVersion(); v != 1 {
				t.Errorf("the list is of version %d", v)
			}
			l.rebuild.Unlock()
			continue
		}
		for range 1000 { // time for a call that does not wait
			runtime.Gosched()
		}
		l.rebuild.Unlock()
		if class := <-got; class.ConfigVersion() != 2 || class.Paused() == "" {
			t.Errorf("the list is of version %d, paused: %q", class.ConfigVersion(), class.Paused())
		}
	}
}
