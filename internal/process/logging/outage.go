package logging

import (
	"time"

	"go.uber.org/zap"
)

const (
	// restateAfter is how often an outage that goes on is logged again.
	restateAfter = time.Minute
	// flapLimit is the shortest time between the beginnings of two outages. Without it, calls that
	// fail and succeed by turns would fill the log.
	flapLimit = 5 * time.Second
)

// Outage logs a repeated failure: a WARN when it begins, another one each minute while it lasts,
// and an INFO with its length once it is over. The failures between are logged at debug. It is for
// one goroutine.
type Outage struct {
	log        *zap.Logger
	lost, back string
	now        func() time.Time // time.Now, except in tests

	since    time.Time // zero while nothing fails
	warnedAt time.Time // time of the last WARN
	warned   bool      // true if a WARN was logged in this outage
}

// NewOutage makes an outage that has not begun. lost and back are the events that are logged.
func NewOutage(log *zap.Logger, lost, back string) *Outage {
	return &Outage{log: log, lost: lost, back: back, now: time.Now}
}

// Failed records one failure.
func (o *Outage) Failed(err error, fields ...zap.Field) {
	now := o.now()
	if o.since.IsZero() {
		o.since, o.warned = now, false
	}
	fields = append(fields, zap.Error(err))
	if away := now.Sub(o.since); away > 0 {
		fields = append(fields, zap.Duration("away", away))
	}
	pause := flapLimit
	if o.warned {
		pause = restateAfter
	}
	if !o.warnedAt.IsZero() && now.Sub(o.warnedAt) < pause {
		o.log.Debug(o.lost, fields...)
		return
	}
	o.warned, o.warnedAt = true, now
	o.log.Warn(o.lost, fields...)
}

// Over records a success, even without a failure before. The end of an outage without a WARN is
// logged at debug too.
func (o *Outage) Over(fields ...zap.Field) {
	if o.since.IsZero() {
		return
	}
	fields = append(fields, zap.Duration("away", o.now().Sub(o.since)))
	o.since = time.Time{}
	if o.warned {
		o.log.Info(o.back, fields...)
		return
	}
	o.log.Debug(o.back, fields...)
}
