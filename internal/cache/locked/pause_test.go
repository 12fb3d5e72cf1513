package locked

import (
	"runtime"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// While somebody else makes a list anew for another configuration the former one is not used: what is paused must not
// begin. One for profiles that have changed is.
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
		m := &members{lists: newLists()}
		m.of(&Snapshot{config: &selection.Config{Version: 1}, profiles: 1}, "tts", r, false)
		l := m.lists.find(class.Hash("tts", r), "tts", r)
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
		for range 1000 { // one that does not wait has its chance to be seen
			runtime.Gosched()
		}
		l.rebuild.Unlock()
		if class := <-got; class.ConfigVersion() != 2 || class.Paused() == "" {
			t.Errorf("the list is of version %d, paused: %q", class.ConfigVersion(), class.Paused())
		}
	}
}
