// Package entrant is what each registry under test does, and the process that has it done.
//
// Such a process answers each Request by an Answer, as measure.Serve has it.
package entrant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	// callLimit bounds a call to a registry.
	callLimit = 10 * time.Second
	// seeLimit is how long changes may be on their way after the last one was made.
	seeLimit = 3 * time.Second
)

// Registry is one client of a registry. Each service has one caller at a time.
type Registry interface {
	// Register makes a new instance, whose heartbeats the caller sends.
	Register(ctx context.Context, service, id string) error
	Beat(ctx context.Context, service, id string) error
	// BeatAll beats all instances that this client has registered, in calls of up to 64 of one
	// service if it has such calls, and returns how many they are.
	BeatAll(ctx context.Context) (int, error)
	// Change gives an instance of this client other content, in which subscribers find the payload.
	Change(ctx context.Context, service, id, payload string) error
	// Watch calls see, from one goroutine, with the payload of the changed instance until Close. It
	// returns when no later change can be missed.
	Watch(ctx context.Context, service string, see func(payload string)) error
	Close() error
}

// Request is one thing to do:
//
//	fill      registers Each instances in each of Workers services
//	register  registers further ones for the window, Workers at a time, in as many services
//	beat      sends heartbeats of what fill has registered, for the window, Workers at a time
//	beatall   beats all of them for the window
//	watch     has Workers subscribers follow the first service, spread over the clients
//	change    changes the first Each instances of the first service, in turn, at the rate for the
//	          window; 0 is one
//	seen      waits until the subscribers have seen Each changes in sum, and answers when they did
type Request struct {
	Do string `json:"do"`
	// Name is a part of each service name. It differs from round to round.
	Name    string        `json:"name,omitempty"`
	Workers int           `json:"workers,omitempty"`
	Each    int           `json:"each,omitempty"`
	Window  time.Duration `json:"window,omitempty"`
	Rate    int           `json:"rate,omitempty"`
}

// Answer has what was done or seen, and for seen the times from when a change was due.
type Answer struct {
	Count int                    `json:"count,omitempty"`
	Times *hdrhistogram.Snapshot `json:"times,omitempty"`
}

type process struct {
	clients  []Registry
	trackers []*tracker
}

// Serve answers requests with count clients until standard input ends.
func Serve(ctx context.Context, count int, open func(context.Context) (Registry, error)) (err error) {
	var p process
	defer func() {
		for _, c := range p.clients {
			err = errors.Join(err, c.Close())
		}
	}()
	for range count {
		start, cancel := context.WithTimeout(ctx, measure.StartLimit)
		c, err := open(start)
		cancel()
		if err != nil {
			return err
		}
		p.clients = append(p.clients, c)
	}
	return measure.Serve(os.Stdin, os.Stdout, func(text []byte) (any, error) {
		var r Request
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
		return p.do(ctx, r)
	})
}

func (p *process) do(ctx context.Context, r Request) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Window+3*callLimit)
	defer cancel()
	first := p.clients[0]
	to := time.Now().Add(r.Window)
	inWindow := func(int) bool { return time.Now().Before(to) }
	switch r.Do {
	case "fill":
		a.Count, err = r.work(func(i int) bool { return i < r.Each }, func(service string, i int) error {
			return first.Register(ctx, service, id(i))
		})
	case "register":
		a.Count, err = r.work(inWindow, func(service string, i int) error {
			return first.Register(ctx, service, "more-"+id(i))
		})
	case "beat":
		a.Count, err = r.work(inWindow, func(service string, i int) error {
			return first.Beat(ctx, service, id(i%r.Each))
		})
	case "beatall":
		for err == nil && time.Now().Before(to) {
			var n int
			n, err = first.BeatAll(ctx)
			a.Count += n
		}
	case "watch":
		// One after the other: the first of a client takes the service up, the others join.
		for i := 0; err == nil && i < r.Workers; i++ {
			t := &tracker{times: measure.NewHistogram()}
			p.trackers = append(p.trackers, t)
			err = p.clients[i%len(p.clients)].Watch(ctx, r.service(0), t.see)
		}
	case "change":
		a.Count, err = r.change(ctx, first)
	case "seen":
		return p.seen(r.Each)
	default:
		err = fmt.Errorf("request %q is not known", r.Do)
	}
	return a, err
}

func id(i int) string { return "instance-" + strconv.Itoa(i) }

func (r *Request) service(worker int) string { return r.Name + "-" + strconv.Itoa(worker) }

// work has each worker call do with numbers from 0 on, while more says so.
func (r *Request) work(more func(i int) bool, do func(service string, i int) error) (count int, err error) {
	counts := make([]int, r.Workers)
	err = measure.InParallel(r.Workers, r.Workers, func(w int) error {
		for i := 0; more(i); i++ {
			if err := do(r.service(w), i); err != nil {
				return err
			}
			counts[w]++
		}
		return nil
	})
	for _, n := range counts {
		count += n
	}
	return count, err
}

// change is an open loop: a change that is late counts from when it was due.
func (r *Request) change(ctx context.Context, c Registry) (made int, err error) {
	pacer, err := measure.NewPacer(ctx)
	if err != nil {
		return 0, err
	}
	defer pacer.Close()
	every := time.Second / time.Duration(r.Rate)
	from := time.Now().Add(every)
	for ; time.Duration(made)*every < r.Window; made++ {
		p := payload{from: from.UnixNano(), every: int64(every), number: int64(made)}
		if err := pacer.Wait(ctx, time.Unix(0, p.due(p.number))); err != nil {
			return made, err
		}
		if err := c.Change(ctx, r.service(0), id(made%max(r.Each, 1)), p.String()); err != nil {
			return made, err
		}
	}
	return made, nil
}

func (p *process) seen(expected int) (a Answer, err error) {
	times := measure.NewHistogram()
	for end := time.Now().Add(seeLimit); ; time.Sleep(10 * time.Millisecond) {
		for _, t := range p.trackers {
			a.Count += t.take(times)
		}
		if a.Count >= expected || time.Now().After(end) {
			a.Times = times.Export()
			return a, nil
		}
	}
}
