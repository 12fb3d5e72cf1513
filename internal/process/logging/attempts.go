package logging

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Attempts logs failed attempts at one thing as an Outage does, and leaves out of their own log the
// events that an earlier attempt has logged. Nothing is left out once an attempt has succeeded.
// Failed and Over are for one goroutine.
type Attempts struct {
	outage *Outage
	over   atomic.Bool

	mu            sync.Mutex
	earlier, last map[string]bool // events of the earlier attempts and of the last one; guarded by mu
}

// NewAttempts returns the logger for all attempts, too. failed and succeeded are the events that
// are logged to log itself. The first attempt has begun.
func NewAttempts(log *zap.Logger, failed, succeeded string) (*Attempts, *zap.Logger) {
	a := &Attempts{outage: NewOutage(log, failed, succeeded), earlier: make(map[string]bool), last: make(map[string]bool)}
	return a, log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return &attempting{core, a} }))
}

// Failed ends an attempt and begins the next one.
func (a *Attempts) Failed(err error, fields ...zap.Field) {
	a.outage.Failed(err, fields...)
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.earlier, a.last)
	clear(a.last)
}

// Over ends the last attempt, the one that succeeded.
func (a *Attempts) Over(fields ...zap.Field) {
	a.over.Store(true)
	a.outage.Over(fields...)
}

func (a *Attempts) isNew(event string) bool {
	if a.over.Load() {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[event] = true
	return !a.earlier[event]
}

type attempting struct {
	zapcore.Core
	attempts *Attempts
}

func (c *attempting) With(fields []zap.Field) zapcore.Core {
	return &attempting{c.Core.With(fields), c.attempts}
}

func (c *attempting) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && c.attempts.isNew(entry.Message) {
		return c.Core.Check(entry, checked)
	}
	return checked
}
