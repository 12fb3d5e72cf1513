package embed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/handle"
)

// tooManyRetryAfter is the pause for a caller that has too many jobs without a result: about the
// time of a short job.
const tooManyRetryAfter = 100 * time.Millisecond

// jobs holds the jobs without a result. It is the sink of them all, and must be a pointer.
type jobs struct {
	limit int
	// life is the context of attaches: once it ends, no submit takes over a job that its key names.
	life context.Context
	end  context.CancelFunc

	mu sync.Mutex // guards the fields that follow, and all handles
	// opened is true once the replica serves, draining once it takes no more calls, closed once it
	// awaits no more results.
	opened, draining, closed bool
	handles                  map[string]*Handle // by keyOf
	// reserved counts jobs whose submit is under way, calls the attaches and cancels under way.
	reserved, calls int
	// idle is closed when the drained replica has nothing left to do.
	idle chan struct{}
}

func newJobs(limit int) *jobs {
	js := &jobs{limit: limit, handles: make(map[string]*Handle), idle: make(chan struct{})}
	js.life, js.end = context.WithCancel(context.Background())
	return js
}

// keyOf returns the part that all ids of a job in different cells have in common.
func keyOf(jobID string) string {
	if _, rest, ok := strings.Cut(jobID, "-"); ok {
		return rest
	}
	return jobID
}

func (js *jobs) open() {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.opened = true
}

// drain lets no more calls begin. The channel is closed when the calls under way and all jobs have
// ended.
func (js *jobs) drain() (idle <-chan struct{}) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if !js.draining {
		js.draining = true
		js.end()
		js.closeIfIdle()
	}
	return js.idle
}

// close fails the handles that have no result, and returns how many there were.
func (js *jobs) close() (left int) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.closed = true
	left = len(js.handles)
	for _, h := range js.handles {
		js.finish(h, nil, ErrClosed)
	}
	return left
}

// refusal returns the reason that no call may begin. The caller holds mu.
func (js *jobs) refusal() error {
	switch {
	case js.draining:
		return ErrClosed
	case !js.opened:
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "the replica has not been started"}
	default:
		return nil
	}
}

// reserve takes room for up to n jobs. The error is the reason that there is room for fewer.
func (js *jobs) reserve(n int) (room int, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if err := js.refusal(); err != nil {
		return 0, err
	}
	// Several attaches that begin together can take more than there is room for.
	if room = max(0, min(n, js.limit-len(js.handles)-js.reserved)); room < n {
		err = js.tooMany()
	}
	js.reserved += room
	return room, err
}

func (js *jobs) tooMany() error {
	return &freeslot.Error{
		Code: freeslot.CodeOverloaded, RetryAfter: tooManyRetryAfter,
		Message: fmt.Sprintf("the replica has %d jobs without a result, which is its limit", js.limit),
	}
}

// accepted takes the outcome of one reserved submit.
func (js *jobs) accepted(a dispatch.Accepted, err error) Submitted {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.reserved--
	if err != nil {
		js.closeIfIdle()
		return Submitted{Err: err}
	}
	h := js.handles[keyOf(a.JobID)]
	if h == nil { // otherwise its idempotency key belongs to a job that is awaited already
		h = js.add(a.JobID)
	}
	js.own(h, a.JobID, a.Position)
	if js.closed {
		js.finish(h, nil, ErrClosed)
	}
	return Submitted{Handle: h}
}

// The callers of add, own, finish, remove and closeIfIdle hold mu.
func (js *jobs) add(jobID string) *Handle {
	h := &Handle{key: keyOf(jobID), job: handle.New(&js.mu)}
	js.handles[h.key] = h
	return h
}

// own records that the result comes here.
func (js *jobs) own(h *Handle, jobID string, position int) {
	if !h.owned {
		h.owned, h.id, h.position = true, jobID, position
	}
}

// finish ends a handle, by a status or an error; only the first call counts.
func (js *jobs) finish(h *Handle, s *freeslot.JobStatus, err error) {
	if h.job.Ended() {
		return
	}
	js.remove(h)
	if s != nil {
		h.job.Assign(s.Node, s.Attempt)
	}
	h.job.Finish(s, err)
}

func (js *jobs) remove(h *Handle) {
	if js.handles[h.key] == h {
		delete(js.handles, h.key)
	}
	js.closeIfIdle()
}

func (js *jobs) closeIfIdle() {
	if js.draining && len(js.handles) == 0 && js.reserved == 0 && js.calls == 0 {
		select {
		case <-js.idle:
		default:
			close(js.idle)
		}
	}
}

func (js *jobs) beginCall() error {
	js.mu.Lock()
	defer js.mu.Unlock()
	err := js.refusal()
	if err == nil {
		js.calls++
	}
	return err
}

func (js *jobs) endCall() {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.calls--
	js.closeIfIdle()
}
