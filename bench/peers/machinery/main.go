// Command machinery is github.com/RichardKnop/machinery as a peer of the benchmark: see bench/load
// for the roles.
//
//	machinery worker -redis URL -servers 4 -concurrency 32 -results notify
//	machinery load -redis URL -results notify
//
// machinery keeps a task's state with its result under the task's id and notifies no one. There are
// two ways to read it:
//
//   - poll: the submitter reads the states of its outstanding tasks, many a round trip. It calls
//     MGET itself, as AsyncResult reads one task a call.
//   - notify: once machinery has stored that the task has succeeded the worker publishes id and
//     result, many in one message, and the submitter listens.
//
// machinery takes a task from its queue by BLPOP: a task is lost with the worker that took it. The
// others here give it to another worker, so machinery does less.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/RichardKnop/machinery/v2"
	backend "github.com/RichardKnop/machinery/v2/backends/redis"
	broker "github.com/RichardKnop/machinery/v2/brokers/redis"
	"github.com/RichardKnop/machinery/v2/config"
	lock "github.com/RichardKnop/machinery/v2/locks/eager"
	"github.com/RichardKnop/machinery/v2/log"
	"github.com/RichardKnop/machinery/v2/tasks"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/freeslot/freeslot/bench/load"
)

const (
	taskName = "noop"
	// kept is how long machinery keeps a result, in seconds: longer than a run.
	kept    = 3600
	channel = "bench:results"
	// pollBatch bounds the tasks that one round trip of poll reads.
	pollBatch = 512
	notify    = "notify"
	// blockFor bounds how long a worker takes to stop, in milliseconds; it is woken by a task all
	// the same.
	blockFor = 1000
)

func main() {
	log.Set(silent{}) // or else it writes to standard output
	os.Exit(load.Main(startWorker, openLoad))
}

// newServer makes a server with the client library that machinery's own example for go-redis has.
func newServer(opt *redis.Options) *machinery.Server {
	cfg := &config.Config{
		DefaultQueue: "bench", ResultsExpireIn: kept, NoUnixSignals: true,
		Redis: &config.RedisConfig{NormalTasksPollPeriod: blockFor, DelayedTasksPollPeriod: blockFor},
	}
	return machinery.NewServer(cfg, broker.NewGR(cfg, []string{opt.Addr}, opt.DB), backend.NewGR(cfg, []string{opt.Addr}, opt.DB), lock.New())
}

// worker is servers that run tasks in this process.
type worker struct {
	client    *redis.Client
	publisher *load.Publisher // of client; both are nil with poll
	stamps    sync.Map        // of tasks that run, by id
	running   []*machinery.Worker
	errs      chan error
}

func startWorker(_ context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	url := f.String("redis", "", "URL of Redis")
	servers := f.Int("servers", 1, "servers in this process; each takes one task after the other from Redis")
	concurrency := f.Int("concurrency", 32, "handlers of each server")
	results := f.String("results", notify, "poll or notify")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	opt, err := redis.ParseURL(*url)
	if err != nil {
		return nil, err
	}
	w := &worker{errs: make(chan error, *servers)}
	if *results == notify {
		w.client = redis.NewClient(opt)
		w.publisher = load.NewPublisher(func(ctx context.Context, message string) error { return w.client.Publish(ctx, channel, message).Err() })
	}
	for i := range *servers {
		server := newServer(opt)
		if err := server.RegisterTask(taskName, w.handle); err != nil {
			return nil, errors.Join(err, w.stop())
		}
		m := server.NewWorker(fmt.Sprint("bench-", i), *concurrency)
		m.SetPostTaskHandler(w.ended)
		m.LaunchAsync(w.errs)
		w.running = append(w.running, m)
	}
	return w.stop, nil
}

func (w *worker) handle(ctx context.Context, _ string) (string, error) {
	stamp := load.Stamp()
	if w.publisher != nil {
		w.stamps.Store(tasks.SignatureFromContext(ctx).UUID, stamp)
	}
	return stamp, nil
}

// ended is called when the task's state has been stored.
func (w *worker) ended(s *tasks.Signature) {
	if stamp, ok := w.stamps.LoadAndDelete(s.UUID); ok {
		text, _ := stamp.(string)
		w.publisher.Add(s.UUID, text)
	}
}

func (w *worker) stop() error {
	var stops sync.WaitGroup
	for _, m := range w.running {
		stops.Go(m.Quit)
	}
	stops.Wait()
	var err error
	for range w.running {
		err = errors.Join(err, <-w.errs)
	}
	if w.publisher != nil {
		w.publisher.Close()
		err = errors.Join(err, w.client.Close())
	}
	return err
}

// submitter sends tasks and waits for their results.
type submitter struct {
	server  *machinery.Server
	redis   *redis.Client
	payload string
	sub     *redis.PubSub // nil with poll
	cancel  context.CancelFunc
	readers sync.WaitGroup
	waiting load.Pending
}

func openLoad(ctx context.Context, args []string) (load.Submitter, error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	url := f.String("redis", "", "URL of Redis")
	results := f.String("results", notify, "poll or notify")
	every := f.Duration("every", time.Millisecond, "pause between two polls")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	opt, err := redis.ParseURL(*url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &submitter{
		server: newServer(opt), redis: redis.NewClient(opt), payload: string(load.Payload()),
		cancel: cancel,
	}
	if *results != notify {
		s.readers.Go(func() { s.waiting.Poll(ctx, *every, pollBatch, s.read) })
		return s, nil
	}
	sub := s.redis.Subscribe(ctx, channel)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.sub = sub
	s.readers.Go(func() { s.listen(ctx, sub) })
	return s, nil
}

// Submit implements load.Submitter; machinery sends one task a call, in two round trips.
func (s *submitter) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	for i := range n {
		id := uuid.NewString()
		s.waiting.Add(id, func(o load.Outcome) { done(i, o) })
		_, err := s.server.SendTaskWithContext(ctx, &tasks.Signature{UUID: id, Name: taskName, Args: []tasks.Arg{{Type: "string", Value: s.payload}}})
		if err != nil {
			s.waiting.End(id, load.Outcome{Err: err})
		}
	}
}

func (s *submitter) listen(ctx context.Context, sub *redis.PubSub) {
	for {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		s.waiting.Published(m.Payload)
	}
}

func (s *submitter) read(ctx context.Context, ids []string) {
	states, err := s.redis.MGet(ctx, ids...).Result()
	if err != nil {
		return // the next poll tries again
	}
	for i, value := range states {
		text, _ := value.(string)
		var state tasks.TaskState
		if json.Unmarshal([]byte(text), &state) != nil {
			continue // not sent yet
		}
		switch state.State {
		case tasks.StateSuccess:
			stamp := ""
			if len(state.Results) == 1 {
				stamp, _ = state.Results[0].Value.(string)
			}
			s.waiting.EndStamp(ids[i], stamp)
		case tasks.StateFailure:
			s.waiting.End(ids[i], load.Outcome{Err: errors.New("task failed: " + state.Error)})
		}
	}
}

// Close implements load.Submitter.
func (s *submitter) Close() error {
	s.cancel()
	if s.sub != nil {
		_ = s.sub.Close() // ends its reader
	}
	s.readers.Wait()
	return s.redis.Close()
}

// silent is a log that keeps nothing.
type silent struct{}

func (silent) Print(...any)          {}
func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
func (silent) Fatal(...any)          { os.Exit(1) }
func (silent) Fatalf(string, ...any) { os.Exit(1) }
func (silent) Fatalln(...any)        { os.Exit(1) }
func (silent) Panic(v ...any)        { panic(fmt.Sprint(v...)) }
func (silent) Panicf(f string, v ...any) {
	panic(fmt.Sprintf(f, v...))
}
func (silent) Panicln(v ...any) { panic(fmt.Sprint(v...)) }
