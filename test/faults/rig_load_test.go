package faults

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

const (
	// submitLimit bounds a submission, and the asking for a cancel or for a result.
	submitLimit = 5 * time.Second
	// askAgainAfter is the pause before something is asked for again that is not to be had now.
	askAgainAfter = 50 * time.Millisecond
	// One in burstEvery submissions is a batch of burstJobs, more than there are slots.
	burstEvery, burstJobs = 200, 60
)

// loader is one client that submits jobs and waits for their ends. It can crash, and a new
// connection then takes its jobs over.
type loader struct {
	t    *testing.T
	rec  *Recorder
	name string
	urls string
	rng  *rand.Rand
	next *atomic.Int64 // numbers of submissions
	open *register
	jobs sync.WaitGroup
	// loses: Redis may lose jobs, so that they are not found.
	loses bool
	// quick: the jobs are short. varied: they are of all kinds.
	quick, varied bool
	// keys: there are idempotency keys among them.
	keys   bool
	tenant string

	mu        sync.Mutex // guards what follows
	current   *client.Client
	crashedAt time.Duration
}

func newLoader(t *testing.T, f *fleet, name, urls string, seed uint64, next *atomic.Int64, open *register) *loader {
	t.Helper()
	l := &loader{t: t, rec: f.rec, name: name, urls: urls, rng: rand.New(rand.NewPCG(seed, 2)), next: next, open: open, loses: f.cfg.store != nil && f.cfg.store.loses, quick: f.cfg.quick}
	if f.cfg.varied {
		// While the only node of a home comes and goes, a key has one in each cell.
		l.varied, l.keys, l.tenant = true, f.cfg.cells == 1, tenants[int(seed)%len(tenants)]
	}
	l.current = l.dial(t.Context())
	t.Cleanup(func() { _ = l.client().Close() })
	return l
}

// dial tries until a replica answers; nil when ctx has ended.
func (l *loader) dial(ctx context.Context) *client.Client {
	for {
		c, err := client.Dial(ctx, l.urls, client.Options{
			Name: l.name, Token: l.tenant, MaxBackoff: 500 * time.Millisecond, DialTimeout: 2 * time.Second, PingInterval: time.Second, PingTimeout: 2 * time.Second,
		})
		if err == nil {
			return c
		}
		if !pause(ctx, askAgainAfter) {
			return nil
		}
	}
}

func (l *loader) client() *client.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// crash closes the connection without a message; a new connection takes the jobs over.
func (l *loader) crash(ctx context.Context) {
	c := l.dial(ctx)
	if c == nil {
		return
	}
	l.mu.Lock()
	old := l.current
	l.current, l.crashedAt = c, l.rec.Now()
	l.mu.Unlock()
	_ = old.Close()
}

// run submits until submit ends; the jobs are waited for until all does. rate is jobs a second,
// bursts not counted.
func (l *loader) run(submit, all context.Context, rate float64) {
	for pause(submit, time.Duration(l.rng.ExpFloat64()/rate*float64(time.Second))) {
		n := 1
		if l.rng.IntN(burstEvery) == 0 {
			n = burstJobs
		}
		tasks := make([]Task, n)
		for i := range tasks {
			tasks[i] = newTask(l.rng, int(l.next.Add(1)))
			if l.quick && tasks[i].TakeMS < forEver {
				tasks[i].TakeMS = 1 + tasks[i].TakeMS/20
			}
			if l.varied {
				tasks[i].vary(l.rng, l.keys && n == 1)
				tasks[i].Tenant = l.tenant
			}
		}
		l.jobs.Go(func() { l.submit(all, tasks) })
	}
	l.jobs.Wait()
}

// submit submits jobs, several as a batch, and sees each to its end.
func (l *loader) submit(all context.Context, tasks []Task) {
	jobs := make([]freeslot.Job, len(tasks))
	from := l.rec.Now()
	for i := range tasks {
		l.add(Event{N: tasks[i].N, Who: l.name}, Submitted, func(e *Event) { e.Task = &tasks[i] })
		jobs[i] = tasks[i].job()
	}
	if tasks[0].Keyed {
		l.submitKeyed(all, &tasks[0], &jobs[0], from)
		return
	}
	ctx, cancel := context.WithTimeout(all, submitLimit)
	defer cancel()
	if len(jobs) == 1 {
		h, err := l.client().Submit(ctx, jobs[0])
		l.answered(all, &tasks[0], h, err, from)
		return
	}
	answers, err := l.client().SubmitBatch(ctx, jobs)
	for i := range tasks {
		switch {
		case errors.Is(err, client.ErrClosed): // returned only when nothing was sent
			l.add(Event{N: tasks[i].N, Who: l.name}, Refused, nil)
		case err != nil:
			l.answered(all, &tasks[i], nil, err, from)
		default:
			l.answered(all, &tasks[i], answers[i].Handle, answers[i].Err, from)
		}
	}
}

// submitKeyed submits a job under its key until it is accepted for the second time, which must be
// the same job.
func (l *loader) submitKeyed(all context.Context, task *Task, job *freeslot.Job, from time.Duration) {
	accepted, unknown := false, false
	for {
		ctx, cancel := context.WithTimeout(all, submitLimit)
		h, err := l.client().Submit(ctx, *job)
		cancel()
		switch {
		case err == nil && accepted:
			l.answered(all, task, h, nil, from)
			return
		case err == nil:
			accepted = true
			l.add(Event{N: task.N, Who: l.name, Job: h.ID(), From: from}, Accepted, nil)
		case outcome(err) == Unknown && !accepted && !unknown:
			unknown = true
			l.add(Event{N: task.N, Who: l.name}, Unknown, func(e *Event) {
				e.Note, e.Code = err.Error(), string(freeslot.CodeOf(err))
			})
		case outcome(err) == Refused && !accepted && !unknown && !again(err):
			l.answered(all, task, nil, err, from)
			return
		}
		if err != nil && !pause(all, askAgainAfter) {
			return
		}
	}
}

// answered is the rest of the life of a job as its client sees it, which goes on in the background.
func (l *loader) answered(all context.Context, task *Task, h *client.Handle, err error, from time.Duration) {
	e := Event{N: task.N, Who: l.name}
	if err != nil {
		l.add(e, outcome(err), func(e *Event) { e.Note, e.Code = err.Error(), string(freeslot.CodeOf(err)) })
		return
	}
	e.Job, e.From = h.ID(), from
	l.add(e, Accepted, nil)
	l.open.add(accepted{h.ID(), task.N, l.tenant})
	if task.CancelMS > 0 {
		l.jobs.Go(func() { l.cancel(all, h, task, e) })
	}
	if task.Tells {
		l.jobs.Go(func() { l.listen(all, h, e) })
	}
	l.jobs.Go(func() { l.await(all, h, e) })
}

// listen records the job's progress until the handle is done.
func (l *loader) listen(ctx context.Context, h *client.Handle, e Event) {
	for {
		select {
		case p, open := <-h.Progress():
			if !open {
				return
			}
			l.add(e, Told, func(e *Event) {
				e.Attempt, e.Result = p.Attempt, new(Result)
				if err := json.Unmarshal(p.Value, e.Result); err != nil {
					e.Note = err.Error()
				}
			})
		case <-ctx.Done():
			return
		}
	}
}

// outcome is what an error of Submit means for the job.
func outcome(err error) Kind {
	switch freeslot.CodeOf(err) {
	case freeslot.CodeUnavailable, freeslot.CodeInternal: // ErrClosed is internal, too
		if !strings.Contains(err.Error(), "nothing was sent") {
			return Unknown
		}
	}
	return Refused
}

func (l *loader) add(e Event, kind Kind, more func(*Event)) {
	e.Kind = kind
	if more != nil {
		more(&e)
	}
	l.rec.Add(e)
}

// await waits for the job's end, over crashes of this client.
func (l *loader) await(ctx context.Context, h *client.Handle, e Event) {
	status, err := h.Wait(ctx)
	for ctx.Err() == nil && (errors.Is(err, client.ErrClosed) || l.takenBack(err, &e)) {
		if h, err = l.attach(ctx, e.Job); err == nil {
			status, err = h.Wait(ctx)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.add(e, NoAnswer, func(e *Event) { e.Note = err.Error() })
	default:
		l.add(e, Learned, func(e *Event) { withStatus(e, &status) })
	}
}

// takenBack reports whether an earlier request of the crashed client took the job away: a replica
// that was frozen, or without Redis, can still handle that request when the next client has
// attached elsewhere. The next client then attaches again. Without a crash there was no other
// client.
func (l *loader) takenBack(err error, e *Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return err != nil && strings.Contains(err.Error(), "another client attached") && l.crashedAt > e.From
}

// withStatus puts a job's status, as a client got it, into an event.
func withStatus(e *Event, status *freeslot.JobStatus) {
	e.State, e.Node, e.Attempt, e.Failures = status.State, status.Node, status.Attempt, status.Failures
	if status.Error != nil {
		e.Code = status.Error.Code
	}
	if len(status.Result) > 0 {
		e.Result = new(Result)
		if err := json.Unmarshal(status.Result, e.Result); err != nil {
			e.Note = err.Error()
		}
	}
}

// attach takes the job over, when that is possible again.
func (l *loader) attach(ctx context.Context, id string) (*client.Handle, error) {
	for {
		limit, cancel := context.WithTimeout(ctx, submitLimit)
		h, err := l.client().Attach(limit, id)
		cancel()
		if err == nil || !again(err) || !pause(ctx, askAgainAfter) {
			return h, err
		}
	}
}

// again reports whether something that failed so is to be tried again.
func again(err error) bool {
	return freeslot.CodeOf(err).Temporary() || errors.Is(err, client.ErrClosed)
}

// cancel requests the cancel until a replica accepts it.
func (l *loader) cancel(ctx context.Context, h *client.Handle, task *Task, e Event) {
	if !pause(ctx, time.Duration(task.CancelMS)*time.Millisecond) {
		return
	}
	l.add(e, CancelAsked, nil)
	for {
		limit, cancel := context.WithTimeout(ctx, submitLimit)
		_, err := l.client().Cancel(limit, h.ID())
		cancel()
		switch {
		case err == nil || ctx.Err() != nil || l.loses && freeslot.CodeOf(err) == freeslot.CodeNotFound:
			return
		case !again(err):
			l.t.Errorf("cancel %s: %v", h.ID(), err)
			return
		}
		if !pause(ctx, askAgainAfter) {
			return
		}
	}
}

// register has the jobs that were accepted, for those who look.
type register struct {
	mu   sync.Mutex // guards list
	list []accepted
}

type accepted struct {
	id     string
	n      int
	tenant string
}

func (r *register) add(job accepted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, job)
}

// all are those so far, in the order of their acceptance. The caller must not change them.
func (r *register) all() []accepted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[:len(r.list):len(r.list)]
}
