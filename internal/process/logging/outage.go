package logging

import (
	"time"

	"go.uber.org/zap"
)

const (
	// restateAfter is how often an outage that goes on is told of again.
	restateAfter = time.Minute
	// flapLimit is the least time between two that begin: what fails and succeeds by
	// turns would fill the log like what only fails.
	flapLimit = 5 * time.Second
)

// Outage logs what fails again and again: a WARN when it begins, another one each
// minute while it lasts, and an INFO with how long it was once it is over. The
// failures between are there at debug. It is for one goroutine.
type Outage struct {
	log        *zap.Logger
	lost, back string
	now        func() time.Time // the tests' own

	since  time.Time // zero while nothing fails
	saidAt time.Time // of the last WARN
	said   bool      // of this outage
}

// NewOutage makes one that is not on. lost and back are the events that are logged.
func NewOutage(log *zap.Logger, lost, back string) *Outage {
	return &Outage{log: log, lost: lost, back: back, now: time.Now}
}

// Failed takes in one failure.
func (o *Outage) Failed(err error, fields ...zap.Field) {
	now := o.now()
	if o.since.IsZero() {
		o.since, o.said = now, false
	}
	fields = append(fields, zap.Error(err))
	if away := now.Sub(o.since); away > 0 {
		fields = append(fields, zap.Duration("away", away))
	}
	pause := flapLimit
	if o.said {
		pause = restateAfter
	}
	if !o.saidAt.IsZero() && now.Sub(o.saidAt) < pause {
		o.log.Debug(o.lost, fields...)
		return
	}
	o.said, o.saidAt = true, now
	o.log.Warn(o.lost, fields...)
}

// Over takes in that it works, which it may have done all along. The end of what no
// WARN told of is at debug too.
func (o *Outage) Over(fields ...zap.Field) {
	if o.since.IsZero() {
		return
	}
	fields = append(fields, zap.Duration("away", o.now().Sub(o.since)))
	o.since = time.Time{}
	if o.said {
		o.log.Info(o.back, fields...)
		return
	}
	o.log.Debug(o.back, fields...)
}
