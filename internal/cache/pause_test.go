package cache

import (
	"runtime"
	"testing"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// A list from before a pause, or from before its end, is not returned while another goroutine
// builds the new one.
func TestPauseWaitsForTheList(t *testing.T) {
	t.Parallel()
	r := new(freeslot.Requirement)
	halt := &selection.Config{Version: 1, Paused: &selection.Paused{Services: []string{"tts"}}}
	for _, step := range []struct {
		before, after *selection.Config
		waits         bool
	}{
		{&selection.Config{}, halt, true},
		{halt, &selection.Config{Version: 2}, true},
		{&selection.Config{}, &selection.Config{Version: 3}, false},
	} {
		c := New(Config{}, nil, zap.NewNop(), nil)
		c.SetConfig(step.before)
		c.Class("tts", r)
		cl := c.class("tts", r)
		cl.rebuild.Lock()
		c.SetConfig(step.after)
		got, begun := make(chan *selection.Class, 1), make(chan struct{})
		go func() { close(begun); got <- c.Class("tts", r) }()
		if !step.waits {
			if v := (<-got).ConfigVersion(); v != step.before.Version {
				t.Errorf("the list is of version %d", v)
			}
			cl.rebuild.Unlock()
			continue
		}
		<-begun
		for range 1000 { // one that does not wait has its chance to be seen
			runtime.Gosched()
		}
		cl.rebuild.Unlock()
		if v := (<-got).ConfigVersion(); v != step.after.Version {
			t.Errorf("the list is of version %d, expected %d", v, step.after.Version)
		}
	}
}
