package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/namelist"
)

const (
	clientsMode = "clients"
	// seenLimit is how long clients may take to follow.
	seenLimit = 20 * time.Second
	// askAtOnce bounds how many ids of the load one call has.
	askAtOnce = 512
	mb        = 1e6
)

var modes = map[string]tool.Mode{clientsMode: runClients, reportersMode: runReporters}

// opened is how many clients a child has.
type opened struct {
	URL     string
	Clients int
}

// request is one thing for a child to do:
//
//	follow  has all clients follow List, and answers with the live heap when they have loaded it
//	follow-chain  the same with the chain of this name
//	seen    answers with the time when the last client had Version (0: any) and Revision
//	load    begins to ask the first client for the first IDs ids, at random, Rate a second
//	peak    begins to read the live heap, again and again
//	stop    ends load or peak, and answers with what it found
type request struct {
	Do, List          string
	Version, Revision int64
	IDs, Rate         int
}

type answer struct {
	// AtNS is a moment by the machine's clock.
	AtNS int64
	// Heap is the live heap in bytes; of peak the highest.
	Heap float64
	// Rate is how many checks a second were made; Unknown and Wrong are how many of them were.
	Rate           float64
	Unknown, Wrong int64
}

// startClients starts a process with clients.
func startClients(ctx context.Context, d *bed, clients int) *measure.Child {
	return tool.StartChild(ctx, "clients", clientsMode, opened{d.control.URL(), clients})
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r request) answer {
	return tool.Ask[answer](ctx, c, 0, r)
}

// process is a child.
type process struct {
	clients  []*namelist.Client
	watchers []*watcher
	end      context.CancelFunc // of what stop ends
	done     chan answer
}

func runClients(_ context.Context, arg []byte, serve func(func([]byte) any)) {
	o := tool.Decode[opened](arg)
	var p process
	for range o.Clients {
		c, stop := openClient(o.URL)
		defer tool.End(stop)
		p.clients = append(p.clients, c)
	}
	serve(func(text []byte) any { return p.do(tool.Decode[request](text)) })
}

// openClient returns a client and how to close it.
func openClient(url string) (*namelist.Client, func() error) {
	c := tool.Must(namelist.Open(namelist.Config{RedisURL: url, Deadline: stepLimit}))
	return c, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
		defer cancel()
		return c.Close(ctx)
	}
}

func (p *process) do(r request) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), seenLimit)
	defer cancel()
	switch r.Do {
	case "follow":
		p.watchers = nil // of the list before
		for _, c := range p.clients {
			p.watchers = append(p.watchers, watch(c.List(r.List)))
		}
		for _, w := range p.watchers {
			tool.Check(w.list.WaitReady(ctx))
		}
		a.Heap = measure.LiveHeap()
	case "follow-chain":
		p.watchers = nil
		for _, c := range p.clients {
			of := c.Chain(r.List)
			p.watchers = append(p.watchers, watchChain(of))
			tool.Check(of.WaitReady(ctx))
		}
	case "seen":
		for _, w := range p.watchers {
			a.AtNS = max(a.AtNS, w.seen(ctx, r.Version, r.Revision))
		}
	case "load":
		list := p.watchers[0].list
		p.begin(func(ctx context.Context) answer { return load(ctx, list, r.IDs, r.Rate) })
	case "peak":
		p.begin(peak)
	case "stop":
		p.end()
		return <-p.done
	default:
		tool.Check(fmt.Errorf("%q is not a request", r.Do))
	}
	return a
}

func (p *process) begin(do func(context.Context) answer) {
	ctx, end := context.WithCancel(context.Background())
	p.end, p.done = end, make(chan answer, 1)
	go func() { p.done <- do(ctx) }()
}

func peak(ctx context.Context) (a answer) {
	for ctx.Err() == nil {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		a.Heap = max(a.Heap, float64(m.HeapAlloc))
		_ = measure.SleepUntil(ctx, time.Now().Add(time.Millisecond))
	}
	return a
}

// load asks for members in an open loop: what could not be asked in time is asked later.
func load(ctx context.Context, list *namelist.List, ids, rate int) (a answer) {
	begin, asked := time.Now(), 0
	numbers := make([]int, 0, askAtOnce)
	for ctx.Err() == nil {
		due := min(int(time.Since(begin).Seconds()*float64(rate))-asked, askAtOnce)
		if due <= 0 {
			_ = measure.SleepUntil(ctx, time.Now().Add(time.Millisecond))
			continue
		}
		numbers = numbers[:0]
		for range due {
			numbers = append(numbers, rand.IntN(ids))
		}
		for _, got := range list.CheckAll(context.Background(), idsOf(numbers)) { // the client has a deadline
			switch got.Verdict {
			case namelist.Unknown:
				a.Unknown++
			case namelist.No:
				a.Wrong++
			}
		}
		asked += due
	}
	a.Rate = float64(asked) / time.Since(begin).Seconds()
	return a
}

// watcher asks its list, or its chain, again after each change.
type watcher struct {
	list *namelist.List // nil for a chain

	mu      sync.Mutex
	answers []seen        // guarded by mu
	more    chan struct{} // has a token when there are more answers
}

// seen is an answer, and when it was there.
type seen struct{ version, revision, at int64 }

// watch never ends; its client does.
func watch(l *namelist.List) *watcher {
	w := &watcher{list: l, more: make(chan struct{}, 1)}
	member := idOf(0)
	l.OnChange(func(namelist.Status) {
		a := l.Check(context.Background(), member) // the client has a deadline
		if a.Verdict == namelist.Yes {
			w.add(a.Version, a.Revision)
		}
	})
	return w
}

// watchChain works like watch. A chain has no revision of edits.
func watchChain(c *namelist.Chain) *watcher {
	w := &watcher{more: make(chan struct{}, 1)}
	subject := namelist.Subject{Key: idOf(segmentIDs)}
	c.OnChange(func(namelist.ChainStatus) {
		if d := c.Evaluate(context.Background(), subject); d.Outcome != namelist.OutcomeUnknown {
			w.add(d.Version, 0)
		}
	})
	return w
}

func (w *watcher) add(version, revision int64) {
	w.mu.Lock()
	w.answers = append(w.answers, seen{version, revision, time.Now().UnixNano()})
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// seen waits for the first answer of the version at the revision, or after it. Answers before it
// are forgotten.
func (w *watcher) seen(ctx context.Context, version, revision int64) (at int64) {
	for {
		w.mu.Lock()
		for i, s := range w.answers {
			if s.revision >= revision && (version == 0 || s.version == version) {
				w.answers = append(w.answers[:0], w.answers[i:]...)
				w.mu.Unlock()
				return s.at
			}
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-ctx.Done():
			tool.Check(fmt.Errorf("version %d at revision %d was not seen", version, revision))
		}
	}
}
