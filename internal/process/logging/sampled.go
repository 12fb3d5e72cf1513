package logging

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// sampledLines lines of one event and level are kept in sampledTime.
const (
	sampledTime  = 10 * time.Second
	sampledLines = 3
)

// Sampled keeps three lines of an event in ten seconds and drops the rest. It is for failures of
// single calls: while Redis is away every call fails, for the same reason.
func Sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, sampledTime, sampledLines, 0)
	}))
}
