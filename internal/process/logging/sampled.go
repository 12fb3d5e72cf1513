package logging

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of one event and level, sampledLines in sampledTime are kept.
const (
	sampledTime  = 10 * time.Second
	sampledLines = 3
)

// Sampled is log for what fails by the call: three lines of an event in ten seconds,
// and the rest dropped. While Redis is away every call fails, and for one reason.
func Sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, sampledTime, sampledLines, 0)
	}))
}
