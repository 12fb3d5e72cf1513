package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	childMode = "child"
	// callLimit bounds what takes no window.
	callLimit   = time.Minute
	bareChannel = "bare"
	// drainLimit is how long a lock may take after the window. A waiter that no one wakes ends with
	// it.
	drainLimit = 2 * time.Second
)

var errStuck = errors.New("not locked in time")

// spec is what a child is.
type spec struct {
	Addr string
	// Setting is of each of the Lockers. Without a library the child subscribes to bareChannel.
	Setting setting
	Lockers int
}

// request is one thing for a child to do:
//
//	load   Workers lock and unlock for the window, worker i with key i modulo Keys
//	hold   locks Keys, with Pause between, and keeps them until its end
//	wait   begins to wait with Workers of each locker for key 0; each unlocks at once
//	got    answers when all these have had the lock, or when a message came on bareChannel
type request struct {
	Do            string
	Keys, Workers int
	Window, Pause time.Duration
}

type answer struct {
	// Locked counts lock and unlock within the window, All also those before it. Waits has the
	// times of all locks in the window. Stuck counts workers that did not get the lock by
	// drainLimit.
	Locked, All, Stuck int64
	Waits              *hdrhistogram.Snapshot
	// AtNS are the moments, in order, by the machine's clock.
	AtNS []int64
}

type child struct {
	lockers []locker
	waiters sync.WaitGroup
	mu      sync.Mutex
	at      []int64 // guarded by mu, as is failed
	failed  error
	bare    chan int64 // nil where the child has lockers
}

func keyName(i int) string { return "k" + strconv.Itoa(i) }

func runChild(ctx context.Context, arg []byte, serve func(func([]byte) any)) {
	s := tool.Decode[spec](arg)
	var c child
	start, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	if s.Setting.Library == "" {
		defer c.subscribe(ctx, s.Addr)()
	} else {
		var closeAll func() error
		c.lockers, closeAll = openAll(start, s.Addr, slices.Repeat([]setting{s.Setting}, s.Lockers))
		defer tool.End(closeAll)
	}
	serve(func(text []byte) any { return c.do(ctx, tool.Decode[request](text)) })
}

func (c *child) do(ctx context.Context, r request) answer {
	switch r.Do {
	case "load":
		return c.load(ctx, r)
	case "hold":
		for i := range r.Keys {
			lockNow(ctx, c.lockers[0], keyName(i))
			time.Sleep(r.Pause)
		}
	case "wait":
		for _, l := range c.lockers {
			for range r.Workers {
				c.waiters.Go(func() { c.wait(ctx, l) })
			}
		}
	case "got":
		if c.bare != nil {
			return answer{AtNS: []int64{<-c.bare}}
		}
		c.waiters.Wait()
		at, failed := c.at, c.failed
		c.at, c.failed = nil, nil
		tool.Check(failed)
		slices.Sort(at)
		return answer{AtNS: at}
	default:
		tool.Check(fmt.Errorf("request %q is not known", r.Do))
	}
	return answer{}
}

// load is the load of one process.
func (c *child) load(ctx context.Context, r request) (a answer) {
	from := time.Now().Add(r.Window / 5)
	to := from.Add(r.Window)
	ctx, cancel := context.WithDeadline(ctx, to.Add(drainLimit))
	defer cancel()
	all := make([]worker, r.Workers)
	tool.Together(r.Workers, r.Workers, func(i int) {
		w := &all[i]
		w.waits = measure.NewHistogram()
		err := w.work(ctx, c.lockers[i%len(c.lockers)], keyName(i%r.Keys), from, to)
		if w.stuck = errors.Is(err, errStuck); !w.stuck {
			tool.Check(err)
		}
	})
	for _, w := range all {
		a.Locked += w.window
		a.All += w.all
		if w.stuck {
			a.Stuck++
		}
		if w.waits != all[0].waits {
			all[0].waits.Merge(w.waits)
		}
	}
	a.Waits = all[0].waits.Export()
	return a
}

// worker counts lock and unlock: those that began and ended within the window, and all. waits are
// of those that began within it.
type worker struct {
	window, all int64
	waits       *hdrhistogram.Histogram
	stuck       bool
}

func (w *worker) work(ctx context.Context, l locker, key string, from, to time.Time) error {
	m, err := l.mutex(key)
	if err != nil {
		return err
	}
	for {
		begin := time.Now()
		if begin.After(to) {
			return nil
		}
		h, err := m(ctx)
		if begin.After(from) {
			measure.Record(w.waits, time.Since(begin))
		}
		if err == nil {
			err = h.unlock()
		}
		if err != nil && ctx.Err() != nil {
			return errStuck
		}
		if err != nil {
			return fmt.Errorf("lock or unlock: %w", err)
		}
		if begin.After(from) && time.Now().Before(to) {
			w.window++
		}
		w.all++
	}
}

func (c *child) wait(ctx context.Context, l locker) {
	ctx, cancel := context.WithTimeout(ctx, 2*callLimit)
	defer cancel()
	var at int64
	err := tool.Try(func() {
		h := lockNow(ctx, l, keyName(0))
		at = time.Now().UnixNano()
		tool.Check(h.unlock())
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.failed = append(c.at, at), errors.Join(c.failed, err)
}

// subscribe is what next is compared with: the subscription that our locks use, without locks.
func (c *child) subscribe(ctx context.Context, addr string) (stop func()) {
	client := tool.Must(redisclient.Subscriber(redisclient.Config{URL: "redis://" + addr}))
	c.bare = make(chan int64, 16)
	ctx, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	<-measure.Subscribe(ctx, &loop, client, bareChannel, func() { c.bare <- time.Now().UnixNano() })
	return func() { cancel(); client.Close(); loop.Wait() }
}

// startChildren starts processes of one kind. The caller ends them.
func startChildren(ctx context.Context, count int, s spec) *tool.Children {
	s.Lockers = max(s.Lockers, 1)
	children := new(tool.Children)
	for range count {
		children.Start(ctx, s.Setting.String(), childMode, s)
	}
	return children
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r request) answer {
	return tool.Ask[answer](ctx, c, r.Window, r)
}

// lockNow takes a lock that should soon be free. ctx bounds the hold, too.
func lockNow(ctx context.Context, l locker, key string) hold {
	return tool.Must(tool.Must(l.mutex(key))(ctx))
}
