package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/lock"
	"github.com/freeslot/freeslot/namelist"
	"github.com/freeslot/freeslot/worker"
)

// MaxLoad is the largest Config.Load, in jobs a second. It takes about half of the nodes' slots.
const MaxLoad = 10

const (
	loadTenant   = "demo"
	loadService  = "work"
	loadKey      = "camera-1"
	loadLock     = "demo:camera-1"
	loadSchedule = "demo"
	// scheduleBody has no version, so that it replaces what an earlier run left.
	scheduleBody = `{"cron":"@every 30s","on_missed":"skip","job":{"service":"work","payload":{"ms":500}}}`

	shortestJob = time.Millisecond
	longestJob  = 2 * time.Second
	keyedJob    = time.Second
	// jobLimit bounds how many jobs wait on a machine that is too slow for the load.
	jobLimit    = time.Minute
	lockHold    = 5 * time.Second
	lookupPause = 500 * time.Millisecond
	retryPause  = 500 * time.Millisecond
)

// work is the payload of loadService: how long a job takes, and how many of its attempts fail.
type work struct {
	MS    int64 `json:"ms"`
	Fails int   `json:"fails,omitempty"`
}

var errPlanned = errors.New("the demo load lets this attempt fail")

// doWork is the handler of loadService.
func doWork(ctx context.Context, job *worker.Job) (any, error) {
	var w work
	if err := json.Unmarshal(job.Payload, &w); err != nil {
		return nil, fmt.Errorf("payload must be an object with ms and fails: %w", err)
	}
	if !pause(ctx, time.Duration(w.MS)*time.Millisecond) {
		return nil, context.Cause(ctx)
	}
	if job.Attempt <= w.Fails {
		return nil, worker.RetryAfter(errPlanned, retryPause)
	}
	return w, nil
}

// loadJob returns the n-th job of the load. Of 100 jobs one ends dead, ten need a second attempt,
// and six share a concurrency key, so that one of them runs while others wait.
func loadJob(n int) *freeslot.Job {
	ratio := float64(longestJob) / float64(shortestJob)
	took := time.Duration(float64(shortestJob) * math.Pow(ratio, rand.Float64()))
	w := work{MS: max(took.Milliseconds(), 1)}
	job := &freeslot.Job{Service: loadService, MaxAttempts: 2, TimeoutMS: jobLimit.Milliseconds()}
	switch {
	case n%100 == 9:
		w.Fails = job.MaxAttempts
	case n%10 == 5:
		w.Fails = 1
	case n%50 >= 20 && n%50 < 23:
		w.MS, job.ConcurrencyKey = keyedJob.Milliseconds(), loadKey
	}
	job.Payload, _ = json.Marshal(w) // numbers always can be
	return job
}

// load keeps the system busy, so that there is something to see.
type load struct {
	s    *system
	end  context.CancelFunc
	all  sync.WaitGroup
	ends []func(context.Context) error // of the clients, once all loops have ended
}

// startLoad begins the load that Config.Load asks for. A part of it that cannot begin is logged and
// left out.
func (s *system) startLoad(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	path := "/v1/schedules/" + loadSchedule + "?tenant=" + loadTenant
	if s.cfg.Load == 0 || s.cfg.Exit {
		// One that an earlier run left would go on.
		s.setUp(bounded, http.MethodDelete, path, "")
		return
	}
	running, end := context.WithCancel(ctx)
	l := &load{s: s, end: end}
	s.stops = append(s.stops, l.stop)
	s.setUp(bounded, http.MethodPut, path, scheduleBody)
	l.every(running, time.Duration(float64(time.Second)/s.cfg.Load), func(n int) {
		if err := s.replica.Submit(running, loadTenant, loadJob(n)); err != nil && running.Err() == nil {
			s.cfg.Logger.Warn("demo.job_refused", zap.Error(err))
		}
	})
	if s.redis.lacks != "" {
		return // locks, lists and services need a redis-server
	}
	for name, start := range map[string]func(context.Context, context.Context) error{
		"lock": l.startLock, "list": l.startLookups, "service": l.startService,
	} {
		if err := start(bounded, running); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("demo.left_out", zap.String("part", name), zap.Error(err))
		}
	}
}

// setUp makes or removes the schedule. A dev system also works without it.
func (s *system) setUp(ctx context.Context, method, path, body string) {
	status, answer, err := s.call(ctx, method, path, body)
	if err != nil {
		s.cfg.Logger.Warn("demo.schedule_failed", zap.Error(err))
	} else if status >= http.StatusMultipleChoices && status != http.StatusNotFound {
		s.cfg.Logger.Warn("demo.schedule_refused", zap.ByteString("answer", answer))
	}
}

// startLock lets two owners take turns at a lock: one holds it and the other waits.
func (l *load) startLock(ctx, running context.Context) error {
	m, err := lock.New(lock.Options{RedisURL: l.s.redis.url, Holder: loadTenant, Logger: l.s.cfg.Logger})
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	l.ends = append(l.ends, m.Stop)
	shared, err := m.Get(lock.Config{Key: loadLock})
	if err != nil {
		return err
	}
	for range 2 {
		l.every(lock.WithoutOwner(running), retryPause, func(int) {
			// Without the lock the next turn tries again.
			_ = shared.Do(running, func(held context.Context, _ int64) error {
				pause(held, lockHold)
				return nil
			})
		})
	}
	return nil
}

// startLookups asks the list for ids that are in it and for ids that are not.
func (l *load) startLookups(_, running context.Context) error {
	c, err := namelist.Open(namelist.Config{RedisURL: l.s.redis.url, ClientName: loadTenant, Logger: l.s.cfg.Logger})
	if err != nil {
		return err
	}
	l.ends = append(l.ends, c.Close)
	list := c.List(listName)
	l.every(running, lookupPause, func(n int) { list.Check(running, fmt.Sprintf("user-%d", n%10)) })
	return nil
}

// every calls f now and after each pause, one call at a time, until ctx ends.
func (l *load) every(ctx context.Context, pause time.Duration, f func(n int)) {
	l.all.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			f(n)
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
}

func (l *load) stop(ctx context.Context) error {
	l.end()
	l.all.Wait()
	var errs []error
	for _, end := range l.ends {
		errs = append(errs, end(ctx))
	}
	return errors.Join(errs...)
}

// pause waits for d and reports whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
