package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
)

func startWorker(ctx context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	url := f.String("nats", "", "URL of the server")
	count := f.Int("workers", 1, "workers in this process, each with a connection of its own")
	concurrency := f.Int("concurrency", 64, "handlers of each worker")
	fetch := f.Int("fetch", 64, "jobs that a worker asks for at once")
	mean := f.Duration("mean", 0, "mean time that a job takes, exponentially distributed; 0: it ends at once")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	var workers []*worker
	stop := func() error {
		for _, w := range workers {
			w.stop()
		}
		return nil
	}
	for range *count {
		w, err := newWorker(ctx, *url, *concurrency, *fetch, *mean)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		workers = append(workers, w)
	}
	return stop, nil
}

// worker takes jobs from the consumer that all share.
type worker struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	messages jetstream.MessagesContext
	mean     time.Duration
	free     chan struct{}
	running  sync.WaitGroup // the loop and its handlers
}

func newWorker(ctx context.Context, url string, concurrency, fetch int, mean time.Duration) (_ *worker, err error) {
	w := &worker{mean: mean, free: make(chan struct{}, concurrency)}
	if w.conn, w.js, err = connect(url); err != nil {
		return nil, err
	}
	shared, err := w.js.Consumer(ctx, jobs, consumer)
	if err == nil {
		w.messages, err = shared.Messages(jetstream.PullMaxMessages(fetch), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	}
	if err != nil {
		w.conn.Close()
		return nil, err
	}
	w.running.Go(w.run)
	return w, nil
}

// run takes jobs until messages is stopped.
func (w *worker) run() {
	for {
		m, err := w.messages.Next()
		if err != nil {
			if !errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				fmt.Fprintln(os.Stderr, "next:", err)
			}
			return
		}
		w.free <- struct{}{}
		w.running.Go(func() {
			defer func() { <-w.free }()
			if err := w.handle(m); err != nil {
				fmt.Fprintln(os.Stderr, "handle:", err) // the load gives this job up
			}
		})
	}
}

// handle acknowledges the job once its result is kept.
func (w *worker) handle(m jetstream.Msg) error {
	stamp := load.Stamp()
	if err := load.Work(context.Background(), w.mean); err != nil {
		return err
	}
	kept, err := w.js.PublishAsync(m.Headers().Get(answerTo), []byte(stamp))
	if err != nil {
		return err
	}
	if err := acknowledged(kept); err != nil {
		return err
	}
	return m.Ack()
}

func (w *worker) stop() {
	w.messages.Stop()
	w.running.Wait()
	w.conn.Close()
}
