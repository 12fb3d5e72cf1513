package logging

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestAttempts: an attempt logs all that is new, and leaves out what an earlier one has logged.
func TestAttempts(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	attempts, log := NewAttempts(zap.New(core), "failed", "succeeded")
	child := log.Named("child").With(zap.Int("cell", 1))
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, e := range logs.TakeAll() {
			got = append(got, e.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: logged %q, expected %q", when, got, want)
		}
	}
	log.Warn("warning")
	child.Warn("warning")
	log.Debug("detail")
	expect("the first attempt", "warning", "warning")
	attempts.Failed(errors.New("no"))
	log.Warn("warning")
	child.Error("new")
	child.Info("new")
	expect("the second attempt", "failed", "new", "new")
	attempts.Failed(errors.New("no"))
	child.Warn("warning")
	log.Error("new")
	log.Info("started")
	expect("the third attempt", "started")
	attempts.Over()
	child.Warn("warning")
	log.Warn("warning")
	log.Debug("detail")
	expect("afterwards", "succeeded", "warning", "warning")
}
