package logging

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestRepeated: of each kind there is a line, and another one after a minute.
func TestRepeated(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	r := NewRepeated(zap.New(core), "node.unreadable")
	clock := time.Unix(1000, 0)
	r.now = func() time.Time { return clock }
	check := func(want int) {
		t.Helper()
		if warned := logs.FilterLevelExact(zap.WarnLevel).Len(); warned != want {
			t.Errorf("%d lines, expected %d", warned, want)
		}
		logs.TakeAll()
	}
	for range 59 {
		r.Warn("a")
		r.Warn("b")
		clock = clock.Add(time.Second)
	}
	check(2)
	clock = clock.Add(time.Second)
	r.Warn("a")
	check(1)
	for i := range 2 * maxKinds {
		r.Warn(fmt.Sprint(i))
	}
	check(maxKinds - 1) // b was over
	clock = clock.Add(time.Minute)
	r.Warn("new")
	check(1)
}
