package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/namelist"
)

const (
	childMode  = "child"
	childReady = "ready"
	// seenLimit is how long clients may take to follow.
	seenLimit = 20 * time.Second
	// askAtOnce bounds how many ids of the load one call has.
	askAtOnce = 512
	mb        = 1e6
)

// request is one thing for a child to do:
//
//	open    opens Clients clients, of no list yet
//	follow  has all of them follow List, and answers with the live heap when they have loaded it
//	seen    answers with the time when the last client had Version (0: any) and Revision
//	load    begins to ask the first client for the first IDs ids, at random, Rate a second
//	peak    begins to read the live heap, again and again
//	stop    ends load or peak, and answers with what it found
type request struct {
	Do       string `json:"do"`
	URL      string `json:"url,omitempty"`
	Clients  int    `json:"clients,omitempty"`
	List     string `json:"list,omitempty"`
	Version  int64  `json:"version,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	IDs      int    `json:"ids,omitempty"`
	Rate     int    `json:"rate,omitempty"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	// AtNS is a moment by the machine's clock.
	AtNS int64 `json:"at_ns,omitempty"`
	// Heap is the live heap in bytes; of peak the highest.
	Heap float64 `json:"heap,omitempty"`
	// Rate is how many checks a second were made; Unknown and Wrong are how many of them were.
	Rate    float64 `json:"rate,omitempty"`
	Unknown int64   `json:"unknown,omitempty"`
	Wrong   int64   `json:"wrong,omitempty"`
}

// startChild starts a process with so many clients.
func startChild(ctx context.Context, d *bed, clients int) (*measure.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, childMode)
	cmd.Env = measure.PlainEnv()
	start, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	c, err := measure.StartChild(start, "clients", cmd, childReady)
	if err != nil {
		return nil, err
	}
	if _, err := ask(ctx, c, request{Do: "open", URL: d.control.URL(), Clients: clients}); err != nil {
		return nil, errors.Join(err, c.End())
	}
	return c, nil
}

// ask has a child do something.
func ask(ctx context.Context, c *measure.Child, r request) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	line, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	text, err := c.Ask(ctx, string(line))
	if err == nil {
		err = json.Unmarshal([]byte(text), &a)
	}
	if err == nil && a.Error != "" {
		err = fmt.Errorf("%s: %s: %s", c.Name, r.Do, a.Error)
	}
	return a, err
}

// process is a child.
type process struct {
	clients  []*namelist.Client
	watchers []*watcher
	work     *work // that stop ends
}

// work goes on in the background.
type work struct {
	end  context.CancelFunc
	done chan answer
}

// childMain serves requests until standard input ends.
func childMain() int {
	var p process
	fmt.Println(childReady)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var a answer
		if err == nil {
			a, err = p.do(r)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
			break // the parent has gone
		}
	}
	if err := p.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (p *process) close() (err error) {
	for _, c := range p.clients {
		err = errors.Join(err, closeClient(c))
	}
	return err
}

func openClient(url string) (*namelist.Client, error) {
	return namelist.Open(namelist.Config{RedisURL: url, Deadline: stepLimit})
}

func closeClient(c *namelist.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	return c.Close(ctx)
}

func (p *process) do(r request) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), seenLimit)
	defer cancel()
	switch r.Do {
	case "open":
		for range r.Clients {
			c, err := openClient(r.URL)
			if err != nil {
				return a, err
			}
			p.clients = append(p.clients, c)
		}
		return a, nil
	case "follow":
		p.watchers = nil // of the list before
		for _, c := range p.clients {
			p.watchers = append(p.watchers, watch(c.List(r.List)))
		}
		for _, w := range p.watchers {
			if err := w.list.WaitReady(ctx); err != nil {
				return a, err
			}
		}
		return answer{Heap: liveHeap()}, nil
	case "seen":
		for _, w := range p.watchers {
			at, err := w.seen(ctx, r.Version, r.Revision)
			if err != nil {
				return a, err
			}
			a.AtNS = max(a.AtNS, at)
		}
		return a, nil
	case "load":
		list := p.watchers[0].list
		p.begin(func(ctx context.Context) answer { return load(ctx, list, r.IDs, r.Rate) })
		return a, nil
	case "peak":
		p.begin(peak)
		return a, nil
	case "stop":
		p.work.end()
		return <-p.work.done, nil
	}
	return a, fmt.Errorf("%q is not a request", r.Do)
}

func (p *process) begin(do func(context.Context) answer) {
	ctx, end := context.WithCancel(context.Background())
	p.work = &work{end: end, done: make(chan answer, 1)}
	go func() { p.work.done <- do(ctx) }()
}

// liveHeap is in bytes, after a collection.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
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

// watcher asks its list again after each change.
type watcher struct {
	list *namelist.List

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
		if a.Verdict != namelist.Yes {
			return
		}
		w.mu.Lock()
		w.answers = append(w.answers, seen{a.Version, a.Revision, time.Now().UnixNano()})
		w.mu.Unlock()
		select {
		case w.more <- struct{}{}:
		default:
		}
	})
	return w
}

// seen waits for the first answer of the version at the revision, or after it. Answers before it
// are forgotten.
func (w *watcher) seen(ctx context.Context, version, revision int64) (at int64, err error) {
	for {
		w.mu.Lock()
		for i, s := range w.answers {
			if s.revision >= revision && (version == 0 || s.version == version) {
				w.answers = append(w.answers[:0], w.answers[i:]...)
				w.mu.Unlock()
				return s.at, nil
			}
		}
		w.mu.Unlock()
		select {
		case <-w.more:
		case <-ctx.Done():
			return 0, fmt.Errorf("version %d at revision %d was not seen: %+v", version, revision, w.list.Status())
		}
	}
}
