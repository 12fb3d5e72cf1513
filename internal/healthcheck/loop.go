package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// loop checks one service. Its goroutine owns all fields except cancel and done.
type loop struct {
	service string
	cfg     *Config
	probe   probe
	state   state
	report  func(service string, failure error)
	log     *zap.Logger
	metrics *metrics

	cancel context.CancelFunc
	done   chan struct{} // closed: the goroutine has ended
}

func (l *loop) run(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		err := l.check(ctx)
		took := time.Since(begun)
		if ctx.Err() != nil {
			return // the check was cut short, which proves nothing
		}
		l.metrics.observe(l.service, took, err)
		l.note(err)
		timer.Reset(max(jitter(l.cfg.Interval)-took, 0))
	}
}

func (l *loop) check(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	err := l.probe.run(timed)
	if err != nil && errors.Is(timed.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", config.FormatDuration(l.cfg.Timeout))
	}
	return err
}

// note applies one outcome.
func (l *loop) note(err error) {
	was := l.state.healthy
	switch l.state.observe(err == nil) {
	case unchanged:
		return
	case rose:
		l.log.Info("service.healthy")
	case fell:
		l.log.Warn("service.unhealthy", zap.String(logging.FieldReason, err.Error()))
	}
	if l.state.healthy != was {
		l.metrics.set(l.service, l.state.healthy)
		l.report(l.service, err)
	}
}

// jitter returns d plus or minus a tenth, so that services that started together are not checked
// together for ever.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
