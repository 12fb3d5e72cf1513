package worker

import (
	"errors"
	"testing"

	"github.com/freeslot/freeslot"
)

// After a start whose registration got no answer, but was carried out, no node is left behind on
// which jobs would be placed. A refused registration leaves none anyway.
func TestStartWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		left bool
	}{
		"answer lost": {errors.New("connection reset"), false},
		"refused":     {&freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: "no"}, true},
	} {
		w, f := newFakeWorker(t)
		f.onRegister = func() error { return test.err }
		if err := w.Start(t.Context()); err == nil || !throughGateway && !errors.Is(err, test.err) {
			t.Errorf("%s: %v; want an error, throughGateway or errors.Is(err, test.err)", name, err)
		}
		if left := f.epoch != ""; left != test.left || !f.closed {
			t.Errorf("%s: the node is there: %t, the store is closed: %t", name, left, f.closed)
		}
	}
}
