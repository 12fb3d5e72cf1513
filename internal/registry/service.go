package registry

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/heartbeat"
)

// registerBytes bounds the content of one call of register, so that it occupies Redis for 5 ms at
// most.
const registerBytes = 64 << 10

// service holds a provider's instances of one service. One goroutine makes its calls, one by one.
type service struct {
	p    *Provider
	name string
	wake chan struct{} // has room for one

	mu      sync.Mutex
	members map[string]*member // guarded by mu, like the members themselves
}

func newService(p *Provider, name string) *service {
	return &service{p: p, name: name, wake: make(chan struct{}, 1), members: make(map[string]*member)}
}

func (s *service) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a token is there, and its reader sees this change, too
	}
}

// run sends what is due, once Redis was reached, until ctx ends or no member is left.
func (s *service) run(ctx context.Context) {
	select {
	case <-s.p.redis.reached:
	case <-ctx.Done():
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	cleanup := time.Now().Add(cleanupPause(0))
	for ctx.Err() == nil {
		wait := s.send(ctx)
		if s.p.forget(s) {
			return
		}
		if !time.Now().Before(cleanup) {
			every := time.Duration(0)
			if s.lives() {
				every = s.cleanup(ctx)
			}
			cleanup = time.Now().Add(cleanupPause(every))
		}
		timer.Reset(min(wait, time.Until(cleanup)))
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.drop(ErrClosed)
	}
}

// cleanupPause returns the time until the next cleanup, so that services heal even if no replica
// runs. every is what Redis has asked for, 0 if it has not.
func cleanupPause(every time.Duration) time.Duration {
	if every <= 0 {
		every = DefaultCleanupEvery
	}
	return max(every, leastCleanupPause) + rand.N(every/10+1)
}

// lives reports whether the provider has an instance that is not superseded.
func (s *service) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if !m.superseded() {
			return true
		}
	}
	return false
}

// leastCleanupPause is the shortest pause between two cleanups by one process.
const leastCleanupPause = time.Second

func (s *service) cleanup(ctx context.Context) (every time.Duration) {
	done, err := s.p.conn().cleanupAll(ctx, s.name)
	s.p.metrics.removed.Add(float64(done.removed))
	if err != nil && ctx.Err() == nil {
		s.p.log.Warn("registry.cleanup_failed", zap.String("service", s.name), zap.Error(err))
	}
	return done.every
}

// due holds the members with a task, by task, in lists for one call each.
type due map[task][][]*member

// send makes the calls that are due, and returns the time until the next.
func (s *service) send(ctx context.Context) time.Duration {
	figures := s.p.figures()
	tasks, wait := s.begin(figures.flat)
	if len(tasks) == 0 {
		return wait
	}
	for _, chunk := range tasks[taskLeave] {
		s.end(chunk, "", func() ([]answer, error) { return s.deregister(ctx, chunk) })
	}
	for _, chunk := range tasks[taskPlace] {
		s.place(ctx, chunk)
	}
	for _, chunk := range tasks[taskRegister] {
		s.end(chunk, figures.json, func() ([]answer, error) { return s.register(ctx, chunk, figures.json) })
	}
	for _, t := range []task{taskBeat, taskMetrics} {
		metrics := ""
		if t == taskMetrics {
			metrics = figures.json
		}
		for _, chunk := range tasks[t] {
			s.end(chunk, metrics, func() ([]answer, error) { return s.beat(ctx, chunk, metrics) })
		}
	}
	return 0
}

// begin takes the tasks that are due. If there is one, it also takes tasks that are due soon, so
// that instances share calls.
func (s *service) begin(metrics heartbeat.Metrics) (tasks due, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = heartbeat.Never
	for _, m := range s.members {
		t, until := m.next(now, metrics)
		if t != taskNone {
			until = 0
		}
		wait = min(wait, until)
	}
	if wait > 0 {
		return nil, wait
	}
	tasks = make(due)
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		if t, _ := m.next(now.Add(m.reg.Interval/20), metrics); t != taskNone {
			m.begin(t, now, metrics)
			tasks.add(t, m)
		}
	}
	return tasks, 0
}

// end makes one call, and gives its answers to the members.
func (s *service) end(members []*member, metrics string, call func() ([]answer, error)) {
	answers, err := call()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i, m := range members {
		var a answer
		if err == nil {
			a = answers[i]
		}
		t, was := m.pending, m.superseded()
		s.p.metrics.sent(t, metrics != "", a, err)
		if m.end(now, a, err) && s.members[m.reg.ID] == m {
			delete(s.members, m.reg.ID)
		}
		if next := s.members[m.reg.ID]; next != nil && next != m { // it replaced m during the call
			next.succeed(m)
		}
		s.report(m, was, err)
	}
}

// place finds out the hosts of members, which are registered next.
func (s *service) place(ctx context.Context, members []*member) {
	at, err := s.p.conn().locate(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range members {
		id, failed := m.reg.ID, err
		if failed == nil {
			failed = m.place(at)
		}
		m.end(time.Now(), answer{}, failed)
		if s.members[id] == m && m.reg.ID != id {
			delete(s.members, id)
			s.put(m)
		}
		s.report(m, false, failed)
	}
}

// report logs what an operator must know. Failures of Redis are shown by the metrics and Status
// instead.
func (s *service) report(m *member, was bool, err error) {
	fields := []zap.Field{zap.String("service", s.name), zap.String("instance", m.reg.ID)}
	switch {
	case m.superseded() && !was:
		s.p.log.Error("registry.superseded", append(fields, zap.Error(m.holder))...)
	case m.holder != nil && !m.superseded() && m.failures == 1 && m.replaces == "": // it does not give way at once
		s.p.log.Warn("registry.conflict", append(fields, zap.Error(m.holder))...)
	case m.over() && m.holder == nil:
		s.p.log.Error("registry.host_refused", append(fields, zap.Error(err))...)
	case err != nil && m.failures == 1:
		s.p.log.Warn("registry.call_failed", append(fields, zap.Error(err))...)
	case errors.Is(m.err, ErrUnknown):
		s.p.log.Info("registry.unknown", fields...)
	}
}

func (s *service) register(ctx context.Context, members []*member, metrics string) ([]answer, error) {
	s.mu.Lock()
	items := make([]registerItem, len(members))
	for i, m := range members {
		items[i] = registerItem{
			id: m.reg.ID, epoch: s.p.epoch, replaces: m.replaces, since: m.registeredAt, metrics: metrics, fields: m.fields,
		}
	}
	s.mu.Unlock()
	return s.p.conn().register(ctx, s.name, s.p.opts.FlatMetrics, items)
}

func (s *service) beat(ctx context.Context, members []*member, metrics string) ([]answer, error) {
	s.mu.Lock()
	items := make([]beatItem, len(members))
	for i, m := range members {
		items[i] = beatItem{id: m.reg.ID, epoch: s.p.epoch, content: m.content, metrics: metrics}
	}
	s.mu.Unlock()
	return s.p.conn().heartbeat(ctx, s.name, s.p.opts.FlatMetrics, items)
}

func (s *service) deregister(ctx context.Context, members []*member) ([]answer, error) {
	s.mu.Lock()
	items := make([]deregisterItem, len(members))
	for i, m := range members {
		items[i] = deregisterItem{id: m.reg.ID, epoch: s.p.epoch}
	}
	s.mu.Unlock()
	return s.p.conn().deregister(ctx, s.name, reasonDeregistered, items)
}

// size returns how many bytes a member adds to a call of register.
func (m *member) size() (n int) {
	for _, f := range m.fields {
		n += len(f)
	}
	return n
}

// add puts a member into the last list, or into a new one if that is full.
func (d due) add(t task, m *member) {
	lists := d[t]
	if len(lists) > 0 {
		last := lists[len(lists)-1]
		bytes := m.size()
		for _, other := range last {
			bytes += other.size()
		}
		if len(last) < callItems && (t != taskRegister || bytes <= registerBytes) {
			lists[len(lists)-1] = append(last, m)
			return
		}
	}
	d[t] = append(lists, []*member{m})
}
