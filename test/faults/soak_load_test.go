package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

const (
	// soakRate is jobs a second, of all clients; a machine that is busy with other things must keep
	// up with it.
	soakRate = 50
	// soakOpen bounds the jobs under way: where the machine does not keep up fewer are submitted,
	// so that what is kept in memory is bounded all the same.
	soakOpen = 150
	// A burst of soakBurst jobs, more than there are slots, comes every soakBurstEvery, and a
	// client that goes away before its job has ended every soakGuestEvery.
	soakBurst      = 40
	soakBurstEvery = 5 * time.Second
	soakGuestEvery = 2 * time.Second
	// soakAnswer is how long an answer may take: the longest jobs take ten seconds.
	soakAnswer = 50 * time.Second
)

// soakLoad is jobs of all kinds at a steady rate. Every job must get its answer.
type soakLoad struct {
	t       *testing.T
	f       *fleet
	clients []*client.Client
	all     context.Context // of the jobs, which outlive the time for submitting
	end     context.CancelFunc
	places  chan struct{} // of the jobs under way
	jobs    sync.WaitGroup
	numbers atomic.Int64

	mu     sync.Mutex // guards counts
	counts map[string]int
}

// startSoakLoad submits until submit ends.
func startSoakLoad(submit context.Context, t *testing.T, f *fleet) *soakLoad {
	t.Helper()
	l := &soakLoad{t: t, f: f, places: make(chan struct{}, soakOpen), counts: map[string]int{}}
	l.all, l.end = context.WithCancel(t.Context())
	for i := range f.cfg.replicas {
		l.clients = append(l.clients, dialFleet(t, f, "r"+strconv.Itoa(i+1)))
	}
	t.Cleanup(l.end)
	l.jobs.Go(func() { l.every(submit, time.Second/soakRate, 1, l.one) })
	l.jobs.Go(func() { l.every(submit, soakBurstEvery, 2, func(rng *rand.Rand) { l.burst(rng) }) })
	l.jobs.Go(func() { l.every(submit, soakGuestEvery, 3, l.guest) })
	return l
}

// every does something again and again until ctx ends.
func (l *soakLoad) every(ctx context.Context, interval time.Duration, seed uint64, do func(rng *rand.Rand)) {
	rng := rand.New(rand.NewPCG(seed, 5))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(rng)
		}
	}
}

// stop waits for the answers that are due, and reports when some do not come.
func (l *soakLoad) stop(limit time.Duration) {
	timer := time.AfterFunc(limit, l.end)
	defer timer.Stop()
	l.jobs.Wait()
}

// done is how many jobs have ended.
func (l *soakLoad) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, state := range freeslot.States() {
		n += l.counts[string(state)]
	}
	return n
}

func (l *soakLoad) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d jobs: %v", l.numbers.Load(), l.counts)
}

func (l *soakLoad) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what]++
}

// begin runs do, which sees one job to its end, unless too many are under way.
func (l *soakLoad) begin(do func()) {
	select {
	case l.places <- struct{}{}:
	default:
		l.count("left out")
		return
	}
	l.jobs.Go(func() {
		defer func() { <-l.places }()
		do()
	})
}

// one submits one job; one in ten twice under the same key.
func (l *soakLoad) one(rng *rand.Rand) {
	n := int(l.numbers.Add(1))
	task, c := newTask(rng, n), l.clients[rng.IntN(len(l.clients))]
	other := l.clients[rng.IntN(len(l.clients))]
	l.begin(func() {
		job := task.job()
		if n%10 == 0 {
			job.IdempotencyKey = "key-" + strconv.Itoa(n)
		}
		h := l.submit(c, &job)
		if h == nil {
			return
		}
		if job.IdempotencyKey != "" {
			if again := l.submit(other, &job); again != nil && again.ID() != h.ID() {
				l.t.Errorf("%s: jobs %s and %s have the same key", job.IdempotencyKey, h.ID(), again.ID())
			} else if again != nil {
				h = again // which of the two is answered is the later one
			}
		}
		if task.CancelMS > 0 && pause(l.all, time.Duration(task.CancelMS)*time.Millisecond) {
			l.cancel(c, h.ID())
		}
		l.await(h)
	})
}

// burst submits more jobs at once than there are slots.
func (l *soakLoad) burst(rng *rand.Rand) {
	c := l.clients[rng.IntN(len(l.clients))]
	for range soakBurst {
		task := newTask(rng, int(l.numbers.Add(1)))
		l.begin(func() {
			job := task.job()
			if h := l.submit(c, &job); h != nil {
				if task.CancelMS > 0 {
					l.cancel(c, h.ID())
				}
				l.await(h)
			}
		})
	}
}

// guest is a client that goes away before its job has ended, which another one takes over.
func (l *soakLoad) guest(rng *rand.Rand) {
	n := int(l.numbers.Add(1))
	c := l.clients[rng.IntN(len(l.clients))]
	l.begin(func() {
		ctx, cancel := context.WithTimeout(l.all, submitLimit)
		defer cancel()
		guest, err := client.Dial(ctx, l.f.urls("r"+strconv.Itoa(1+n%l.f.cfg.replicas)), client.Options{Name: "guest"})
		if err != nil {
			l.failed("dial", err)
			return
		}
		task := Task{N: n, TakeMS: 300, Slots: 1}
		job := task.job()
		h := l.submit(guest, &job)
		_ = guest.Close()
		if h == nil {
			return
		}
		if h, err = c.Attach(ctx, h.ID()); err != nil {
			l.failed("attach", err)
			return
		}
		l.count("attached")
		l.await(h)
	})
}

func (l *soakLoad) submit(c *client.Client, job *freeslot.Job) *client.Handle {
	ctx, cancel := context.WithTimeout(l.all, soakAnswer)
	defer cancel()
	h, err := c.Submit(ctx, *job)
	if err != nil {
		l.failed("submit", err)
		return nil
	}
	return h
}

func (l *soakLoad) cancel(c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(l.all, soakAnswer)
	defer cancel()
	if _, err := c.Cancel(ctx, id); err != nil {
		l.failed("cancel", err)
	}
}

func (l *soakLoad) await(h *client.Handle) {
	ctx, cancel := context.WithTimeout(l.all, soakAnswer)
	defer cancel()
	status, err := h.Wait(ctx)
	if err != nil {
		l.failed("answer of "+h.ID(), err)
		return
	}
	l.count(string(status.State))
}

// failed reports what must not fail; a machine that is very busy may put something off.
func (l *soakLoad) failed(what string, err error) {
	if code := freeslot.CodeOf(err); code.Temporary() && !strings.HasPrefix(what, "answer") {
		l.count("not now: " + string(code))
		return
	}
	l.count("failures")
	l.t.Errorf("%s: %v", what, err)
}
