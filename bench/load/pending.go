package load

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Pending are the jobs whose results are outstanding, by id: for submitters whose results come
// apart from their calls. The zero value is ready to use; it is safe for concurrent use.
type Pending struct {
	mu   sync.Mutex
	done map[string]func(Outcome) // guarded by mu
}

// Add notes a job before it is submitted. done is called once with what becomes of it.
func (w *Pending) Add(id string, done func(Outcome)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(map[string]func(Outcome))
	}
	w.done[id] = done
}

// End ends a job, unless it has ended.
func (w *Pending) End(id string, o Outcome) {
	w.mu.Lock()
	done, ok := w.done[id]
	delete(w.done, id)
	w.mu.Unlock()
	if ok {
		done(o)
	}
}

// EndStamp is End for a job that succeeded with this result, which Stamp made.
func (w *Pending) EndStamp(id, stamp string) {
	started, err := ParseStamp([]byte(stamp))
	w.End(id, Outcome{Started: started, Err: err})
}

// Published ends the jobs of a message: a line each, of an id, a space, and the result.
func (w *Pending) Published(message string) {
	for line := range strings.Lines(message) {
		id, stamp, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		w.EndStamp(id, stamp)
	}
}

// Poll calls read with the ids of all outstanding jobs, at most batch of them a call, again and
// again with a pause of every between, until ctx ends.
func (w *Pending) Poll(ctx context.Context, every time.Duration, batch int, read func(ctx context.Context, ids []string)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ids := w.outstanding()
		for len(ids) > 0 {
			n := min(len(ids), batch)
			read(ctx, ids[:n])
			ids = ids[n:]
		}
	}
}

func (w *Pending) outstanding() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.done))
	for id := range w.done {
		ids = append(ids, id)
	}
	return ids
}
