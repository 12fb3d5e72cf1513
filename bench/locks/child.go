package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	childMode  = "child"
	childReady = "ready"
	// callLimit bounds what a child does beyond the window that it is asked for.
	callLimit   = time.Minute
	bareChannel = "bare"
	// drainLimit is how long a lock may take after the window. A waiter that no one wakes ends with
	// it.
	drainLimit = 2 * time.Second
)

var errStuck = errors.New("not locked in time")

// spec is what a child is.
type spec struct {
	Addr string `json:"addr"`
	// Setting is of each of the Lockers. Without a library the child subscribes to bareChannel.
	Setting setting `json:"setting"`
	Lockers int     `json:"lockers"`
}

// request is one thing for a child to do:
//
//	load   Workers lock and unlock for the window, worker i with key i modulo Keys
//	hold   locks Keys, with Pause between, and keeps them until its end
//	wait   begins to wait with Workers of each locker for key 0; each unlocks at once
//	got    answers when all these have had the lock, or when a message came on bareChannel
type request struct {
	Do      string        `json:"do"`
	Keys    int           `json:"keys,omitempty"`
	Workers int           `json:"workers,omitempty"`
	Window  time.Duration `json:"window,omitempty"`
	Pause   time.Duration `json:"pause,omitempty"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	// Locked counts lock and unlock within the window, All also those before it. Waits has the
	// times of all locks in the window. Stuck counts workers that did not get the lock by
	// drainLimit.
	Locked int64                  `json:"locked,omitempty"`
	All    int64                  `json:"all,omitempty"`
	Stuck  int64                  `json:"stuck,omitempty"`
	Waits  *hdrhistogram.Snapshot `json:"waits,omitempty"`
	// AtNS are the moments, in order, by the machine's clock.
	AtNS []int64 `json:"at_ns,omitempty"`
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

// childMain serves requests until standard input ends.
func childMain(args []string) int {
	if err := serve(context.Background(), args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	var s spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	var c child
	if s.Setting.Library == "" {
		stop, err := c.subscribe(ctx, s.Addr)
		if err != nil {
			return err
		}
		defer stop()
	} else {
		start, cancel := context.WithTimeout(ctx, measure.StartLimit)
		defer cancel()
		lockers, closeAll, err := openAll(start, s.Addr, slices.Repeat([]setting{s.Setting}, s.Lockers))
		if err != nil {
			return err
		}
		c.lockers = lockers
		defer func() { err = errors.Join(err, closeAll()) }()
	}
	fmt.Fprintln(out, childReady)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		a, err := c.do(ctx, r)
		if err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
	return nil
}

func (c *child) do(ctx context.Context, r request) (answer, error) {
	switch r.Do {
	case "load":
		return c.load(ctx, r)
	case "hold":
		return answer{}, c.hold(ctx, r)
	case "wait":
		for _, l := range c.lockers {
			for range r.Workers {
				c.waiters.Go(func() { c.wait(ctx, l) })
			}
		}
		return answer{}, nil
	case "got":
		if c.bare != nil {
			return answer{AtNS: []int64{<-c.bare}}, nil
		}
		c.waiters.Wait()
		slices.Sort(c.at)
		a, err := answer{AtNS: c.at}, c.failed
		c.at, c.failed = nil, nil
		return a, err
	}
	return answer{}, fmt.Errorf("request %q is not known", r.Do)
}

// load is the load of one process.
func (c *child) load(ctx context.Context, r request) (answer, error) {
	from := time.Now().Add(r.Window / 5)
	to := from.Add(r.Window)
	var all sync.WaitGroup
	counts, waits, errs := make([]counts, r.Workers), make([]*hdrhistogram.Histogram, r.Workers), make([]error, r.Workers)
	for w := range r.Workers {
		waits[w] = measure.NewHistogram()
		all.Go(func() {
			ctx, cancel := context.WithDeadline(ctx, to.Add(drainLimit))
			defer cancel()
			counts[w], errs[w] = work(ctx, c.lockers[w%len(c.lockers)], keyName(w%r.Keys), from, to, waits[w])
		})
	}
	all.Wait()
	var a answer
	for w := range r.Workers {
		a.Locked += counts[w].window
		a.All += counts[w].all
		if errors.Is(errs[w], errStuck) {
			a.Stuck++
			errs[w] = nil
		}
		if w > 0 {
			waits[0].Merge(waits[w])
		}
	}
	a.Waits = waits[0].Export()
	return a, errors.Join(errs...)
}

// counts are of lock and unlock: those that began and ended within the window, and all.
type counts struct{ window, all int64 }

// work also records the waits that began within the window.
func work(ctx context.Context, l locker, key string, from, to time.Time, waits *hdrhistogram.Histogram) (n counts, err error) {
	m, err := l.mutex(key)
	if err != nil {
		return n, err
	}
	for {
		begin := time.Now()
		if begin.After(to) {
			return n, nil
		}
		h, err := m(ctx)
		if begin.After(from) {
			measure.Record(waits, time.Since(begin))
		}
		if err == nil {
			err = h.unlock()
		}
		if err != nil && ctx.Err() != nil {
			return n, errStuck
		}
		if err != nil {
			return n, fmt.Errorf("lock or unlock: %w", err)
		}
		if begin.After(from) && time.Now().Before(to) {
			n.window++
		}
		n.all++
	}
}

func (c *child) hold(ctx context.Context, r request) error {
	for i := range r.Keys {
		m, err := c.lockers[0].mutex(keyName(i))
		if err != nil {
			return err
		}
		if _, err := m(ctx); err != nil {
			return err
		}
		time.Sleep(r.Pause)
	}
	return nil
}

func (c *child) wait(ctx context.Context, l locker) {
	ctx, cancel := context.WithTimeout(ctx, 2*callLimit)
	defer cancel()
	m, err := l.mutex(keyName(0))
	var at int64
	if err == nil {
		var h hold
		if h, err = m(ctx); err == nil {
			at = time.Now().UnixNano()
			err = h.unlock()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.failed = append(c.at, at), errors.Join(c.failed, err)
}

// subscribe is what next is compared with: the subscription that our locks use, without locks.
func (c *child) subscribe(ctx context.Context, addr string) (stop func(), err error) {
	client, err := redisclient.Subscriber(redisclient.Config{URL: "redis://" + addr})
	if err != nil {
		return nil, err
	}
	c.bare = make(chan int64, 16)
	ctx, cancel := context.WithCancel(ctx)
	stands := make(chan struct{})
	var once sync.Once
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { once.Do(func() { close(stands) }) })
	var loop sync.WaitGroup
	loop.Go(func() {
		_ = client.Receive(ctx, client.B().Subscribe().Channel(bareChannel).Build(), func(rueidis.PubSubMessage) {
			c.bare <- time.Now().UnixNano()
		})
	})
	<-stands
	return func() { cancel(); client.Close(); loop.Wait() }, nil
}

// startChildren starts processes of one kind. The caller ends them by end.
func startChildren(ctx context.Context, count int, s spec) (children []*measure.Child, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.Lockers = max(s.Lockers, 1)
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	for range count {
		cmd := exec.Command(self, childMode, string(arg))
		cmd.Env = measure.PlainEnv()
		c, err := measure.StartChild(ctx, s.Setting.String(), cmd, childReady)
		if err != nil {
			return nil, errors.Join(err, end(children))
		}
		children = append(children, c)
	}
	return children, nil
}

func end(children []*measure.Child) error {
	var failed error
	for _, c := range children {
		failed = errors.Join(failed, c.End())
	}
	return failed
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r request) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Window+3*callLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	text, err := c.Ask(ctx, string(line))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s: %s", c.Name, r.Do, a.Error)
	}
	return a, nil
}

// askAll asks all at the same time.
func askAll(ctx context.Context, children []*measure.Child, r request) ([]answer, error) {
	answers, errs := make([]answer, len(children)), make([]error, len(children))
	var all sync.WaitGroup
	for i, c := range children {
		all.Go(func() { answers[i], errs[i] = ask(ctx, c, r) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}
