package logging

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxKinds bounds the kinds that a Repeated remembers.
const maxKinds = 1000

// Repeated logs one event that may repeat for long without a clear end. For each kind it logs at
// WARN once and then each minute, otherwise at debug. It is safe for concurrent use.
type Repeated struct {
	log   *zap.Logger
	event string
	now   func() time.Time // time.Now, except in tests

	mu     sync.Mutex
	warned map[string]time.Time // time of the last WARN by kind; guarded by mu
}

// NewRepeated makes a Repeated of an event that was not logged yet.
func NewRepeated(log *zap.Logger, event string) *Repeated {
	return &Repeated{log: log, event: event, now: time.Now, warned: make(map[string]time.Time)}
}

// Warn logs the event. kind is what repeats, such as the name of a node.
func (r *Repeated) Warn(kind string, fields ...zap.Field) {
	level := zapcore.DebugLevel
	if r.due(kind) {
		level = zapcore.WarnLevel
	}
	r.log.Log(level, r.event, fields...)
}

func (r *Repeated) due(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	over := func(_ string, at time.Time) bool { return now.Sub(at) >= restateAfter }
	if at, known := r.warned[kind]; known && !over(kind, at) {
		return false
	}
	if len(r.warned) >= maxKinds {
		if maps.DeleteFunc(r.warned, over); len(r.warned) >= maxKinds {
			return false // that many lines a minute say enough
		}
	}
	r.warned[kind] = now
	return true
}
