package logging

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestWithHints(t *testing.T) {
	t.Parallel()
	core, entries := observer.New(zapcore.InfoLevel)
	bad := errors.New("bad")
	log := WithHints(zap.New(core), func(err error) string {
		if errors.Is(err, bad) {
			return "mend it"
		}
		return ""
	}).With(zap.String("node", "n1"))
	log.Debug("below the level", zap.Error(bad))
	log.Warn("one", zap.Error(bad), zap.Int("n", 1))
	log.Warn("another", zap.Error(errors.New("worse")))
	log.Warn("none", zap.Error(nil))
	all := entries.All()
	if len(all) != 3 {
		t.Fatal(all)
	}
	for i, want := range []any{"mend it", nil, nil} {
		if got := all[i].ContextMap(); got["hint"] != want || got["node"] != "n1" {
			t.Errorf(`%s: %v; want got["hint"] == %v, got["node"] == "n1"`, all[i].Message, got, want)
		}
	}
}
