package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

var errRedisAway = errors.New("redis is away")

// fakeCell has the ownership rules of a cell with one node, in memory and in
// virtual time. Its hooks inject faults; they are called with mu held.
type fakeCell struct {
	mu         sync.Mutex
	epoch      cell.Epoch // "" means that the node is not known
	registered int
	node       freeslot.Node         // that was registered last
	size       int                   // its slots
	owned      map[cell.Attempt]bool // true once a cancel was asked
	specs      map[string]*freeslot.Job
	ended      map[cell.Attempt]cell.Completion
	repeats    int // completions of ended attempts
	stale      int // completions of attempts that were not owned
	// rash counts the jobs that were handed back while Redis could still have given their slots to
	// other jobs.
	rash    int
	drained bool // a heartbeat came with the status of a draining node
	stream  []cell.Dispatch
	entries int
	changed chan struct{} // closed and replaced at each change
	beats   []cell.Heartbeat
	closed  bool
	left    []string
	// progress is the progress that has come, in progressCalls calls.
	progress      []cell.ProgressReport
	progressCalls int

	// away makes every call fail.
	away         bool
	progressAway bool // calls of Progress alone fail
	// unserved: there are no schedulers. looks counts the calls of Served.
	unserved bool
	looks    int
	// deaf makes the stream deliver nothing.
	deaf bool
	// onHeartbeat and onComplete run after the call has been applied; an error is
	// a lost answer.
	onRegister  func() error
	onHeartbeat func(n int) error
	onComplete  func(n int) error
	completes   int
	onSpec      func() error
	reads       int // calls of Dispatches
	// next are the jobs that completions hand over, in order.
	next []cell.Dispatch
}

func newFakeCell() *fakeCell {
	return &fakeCell{
		owned: map[cell.Attempt]bool{}, specs: map[string]*freeslot.Job{}, ended: map[cell.Attempt]cell.Completion{},
		changed: make(chan struct{}),
	}
}

func (f *fakeCell) change() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeCell) add(d cell.Dispatch) {
	f.entries++
	d.ID = fmt.Sprintf("%06d-0", f.entries)
	f.stream = append(f.stream, d)
}

// assign gives the node a job, as submit does.
func (f *fakeCell) assign(n int, job freeslot.Job) cell.Attempt { return f.assignAgain(id(n), job) }

// assignAgain gives the node any attempt of a job, as a hand-over does. The node does not own the
// earlier attempts any more.
func (f *fakeCell) assignAgain(a cell.Attempt, job freeslot.Job) cell.Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	for n := range a.N {
		delete(f.owned, cell.Attempt{Job: a.Job, N: n})
	}
	f.owned[a] = false
	f.specs[a.Job] = &job
	if !f.deaf {
		f.add(cell.Dispatch{Attempt: a, Tenant: "default", Job: &job})
	}
	return a
}

func (f *fakeCell) cancel(a cell.Attempt) { f.cancelIf(a, false) }

// cancelOwned is cancel, unless the attempt has ended.
func (f *fakeCell) cancelOwned(a cell.Attempt) { f.cancelIf(a, true) }

func (f *fakeCell) cancelIf(a cell.Attempt, mustOwn bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	if _, ok := f.owned[a]; mustOwn && !ok {
		return
	}
	f.owned[a] = true
	if !f.deaf {
		f.add(cell.Dispatch{Attempt: a, Cancel: true})
	}
}

// disown takes the attempt away, as a reaper does.
func (f *fakeCell) disown(a cell.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owned, a)
}

func (f *fakeCell) with(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	fn()
}

// end waits for the attempt's completion.
func (f *fakeCell) end(t *testing.T, a cell.Attempt) cell.Completion {
	t.Helper()
	var comp cell.Completion
	f.await(t, fmt.Sprintf("the end of %v", a), func() bool {
		var ok bool
		comp, ok = f.ended[a]
		return ok
	})
	return comp
}

// await waits until cond is true. In virtual time an hour passes at once when nothing happens.
func (f *fakeCell) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.After(time.Hour)
	for {
		f.mu.Lock()
		ok, changed := cond(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (f *fakeCell) Register(_ context.Context, node freeslot.Node, epoch cell.Epoch) (_ cell.Registration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	if f.away {
		return cell.Registration{}, errRedisAway
	}
	f.registered++
	if f.onRegister != nil {
		defer func() { err = errors.Join(err, f.onRegister()) }()
	}
	f.node, f.size = node, node.MaxConcurrency
	if f.epoch != epoch {
		f.epoch = epoch
		clear(f.owned)
		f.stream = nil
	}
	return cell.Registration{HeartbeatLimit: 8 * time.Second}, nil
}

func (f *fakeCell) Heartbeat(_ context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	if f.away {
		return cell.HeartbeatReply{}, errRedisAway
	}
	f.beats = append(f.beats, hb)
	f.drained = f.drained || hb.Status == freeslot.StatusDraining
	switch {
	case f.epoch == "":
		return cell.HeartbeatReply{}, cell.ErrUnknownNode
	case f.epoch != hb.Epoch:
		return cell.HeartbeatReply{}, cell.ErrSuperseded
	}
	r := cell.HeartbeatReply{AtMS: int64(f.entries) + 1} // the ids of entries count them
	for a, asked := range f.owned {
		if asked {
			r.Cancel = append(r.Cancel, a)
		}
		if !slices.Contains(hb.Running, a) {
			r.Start = append(r.Start, a)
		}
	}
	for _, a := range hb.Running {
		if _, ok := f.owned[a]; !ok {
			r.Stop = append(r.Stop, a)
		}
	}
	for len(f.stream) > 0 && f.stream[0].ID < hb.Read {
		f.stream = f.stream[1:]
	}
	if f.onHeartbeat != nil {
		if err := f.onHeartbeat(len(f.beats)); err != nil {
			return cell.HeartbeatReply{}, err
		}
	}
	return r, nil
}

func (f *fakeCell) Deregister(_ context.Context, _ string, epoch cell.Epoch) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	if f.away {
		return nil, errRedisAway
	}
	if f.epoch != "" && f.epoch != epoch {
		return nil, cell.ErrSuperseded
	}
	for a := range maps.Keys(f.owned) {
		f.left = append(f.left, a.Job)
	}
	f.epoch = ""
	return f.left, nil
}

func (f *fakeCell) Complete(_ context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	f.completes++
	if f.away {
		return "", errRedisAway
	}
	if comp.Next == cell.HandBack && !f.drained {
		f.rash++
	}
	outcome, begun := cell.CompletedStale, []cell.Dispatch(nil)
	if _, ok := f.owned[comp.Attempt]; ok && f.epoch == comp.Epoch {
		delete(f.owned, comp.Attempt)
		f.ended[comp.Attempt] = comp
		outcome = cell.Completed
		if len(f.next) > 0 {
			begun, f.next = f.next[:1:1], f.next[1:]
			f.owned[begun[0].Attempt], f.specs[begun[0].Attempt.Job] = false, begun[0].Job
		}
	} else if _, ok := f.ended[comp.Attempt]; ok {
		f.repeats++
		outcome = cell.CompletedBefore
	} else {
		f.stale++
	}
	if f.onComplete != nil {
		if err := f.onComplete(f.completes); err != nil {
			return "", err
		}
	}
	if comp.Begun != nil && len(begun) > 0 {
		comp.Begun(begun)
	}
	return outcome, nil
}

func (f *fakeCell) Progress(_ context.Context, _ string, epoch cell.Epoch, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.change()
	f.progressCalls++
	if f.away || f.progressAway {
		return nil, errRedisAway
	}
	out := make([]cell.ProgressOutcome, len(reports))
	for i, r := range reports {
		asked, owned := f.owned[r.Attempt]
		switch {
		case !owned || f.epoch != epoch:
			continue
		case asked:
			out[i] = cell.ProgressCancel
		default:
			out[i] = cell.ProgressTaken
		}
		f.progress = append(f.progress, r)
	}
	return out, nil
}

func (f *fakeCell) Dispatches(ctx context.Context, _, after string, block time.Duration, limit int) ([]cell.Dispatch, error) {
	timeout := time.NewTimer(block)
	defer timeout.Stop()
	f.mu.Lock()
	f.reads++
	f.mu.Unlock()
	for {
		f.mu.Lock()
		if f.away {
			f.mu.Unlock()
			return nil, errRedisAway
		}
		i, _ := slices.BinarySearchFunc(f.stream, after, func(d cell.Dispatch, id string) int {
			if d.ID <= id {
				return -1
			}
			return 1
		})
		rest, changed := slices.Clone(f.stream[i:min(len(f.stream), i+limit)]), f.changed
		f.mu.Unlock()
		if len(rest) > 0 {
			return rest, nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fakeCell) Spec(_ context.Context, jobID string) (*freeslot.Job, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, "", errRedisAway
	}
	if f.onSpec != nil {
		if err := f.onSpec(); err != nil {
			return nil, "", err
		}
	}
	job, ok := f.specs[jobID]
	if !ok {
		return nil, "", &freeslot.Error{Code: freeslot.CodeNotFound, Message: "no such job"}
	}
	copied := *job
	copied.Payload = json.RawMessage(slices.Clone(job.Payload))
	return &copied, "default", nil
}

func (f *fakeCell) Served(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return false, errRedisAway
	}
	f.looks++
	return !f.unserved, nil
}

// newFakeWorker makes a worker of four slots on a fake cell.
func newFakeWorker(t *testing.T, change ...func(*Config)) (*Worker, *fakeCell) {
	t.Helper()
	cfg := Config{ExitUnreachable: true, RedisURL: "redis://unused:1", Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}, Collectors: []Collection{}}
	if throughGateway {
		cfg.RedisURL, cfg.Gateway, cfg.Token = "", "ws://gateway", testToken
	}
	for _, c := range change {
		c(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakeCell()
	if throughGateway {
		behindGateway(t, w, f)
		return w, f
	}
	w.open = func(context.Context) (store, func(context.Context) error, error) {
		return f, func(context.Context) error { f.with(func() { f.closed = true }); return nil }, nil
	}
	return w, f
}
