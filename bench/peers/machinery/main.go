// Command machinery is github.com/RichardKnop/machinery as a peer of the benchmark: see bench/peers/load for the roles.
//
//	machinery worker -redis URL -servers 4 -concurrency 32 -results notify
//	machinery load -redis URL -results notify
//
// machinery keeps a task's state, and with it the result, under the task's id, and tells nobody. There are two ways to read it:
//
//   - poll: the submitter reads the states of its outstanding tasks, many a round trip. It calls MGET itself, as
//     AsyncResult reads one task a call.
//   - notify: once machinery has stored that the task has succeeded the worker publishes id and result, many in one message,
//     and the submitter listens.
//
// machinery takes a task from its queue by BLPOP: one that was taken is lost with its worker. The others here give it to
// another worker, so machinery does less.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
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

	"github.com/freeslot/freeslot/bench/peers/load"
)

const (
	taskName = "noop"
	// kept is how long machinery keeps a result, in seconds: longer than a run.
	kept    = 3600
	channel = "bench:results"
	// pollBatch bounds the tasks that one round trip of poll reads.
	pollBatch = 512
	notify    = "notify"
	// told is how many results may wait to be published, and toldAtOnce how many one message has: as many as there are by then.
	told       = 4096
	toldAtOnce = 128
	// blockFor bounds how long a worker takes to stop, in milliseconds; it is woken by a task all the same.
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
	teller  *teller  // nil with poll
	stamps  sync.Map // of tasks that run, by id
	running []*machinery.Worker
	errs    chan error
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
		w.teller = newTeller(redis.NewClient(opt))
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
	if w.teller != nil {
		w.stamps.Store(tasks.SignatureFromContext(ctx).UUID, stamp)
	}
	return stamp, nil
}

// ended is called when the task's state has been stored.
func (w *worker) ended(s *tasks.Signature) {
	if stamp, ok := w.stamps.LoadAndDelete(s.UUID); ok {
		text, _ := stamp.(string)
		w.teller.tell(s.UUID, text)
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
	if w.teller != nil {
		err = errors.Join(err, w.teller.close())
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

	mu      sync.Mutex // guards waiting
	waiting map[string]func(load.Outcome)
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
		cancel: cancel, waiting: make(map[string]func(load.Outcome)),
	}
	if *results != notify {
		s.readers.Go(func() { s.poll(ctx, *every) })
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
		s.mu.Lock()
		s.waiting[id] = func(o load.Outcome) { done(i, o) }
		s.mu.Unlock()
		_, err := s.server.SendTaskWithContext(ctx, &tasks.Signature{UUID: id, Name: taskName, Args: []tasks.Arg{{Type: "string", Value: s.payload}}})
		if err != nil {
			s.end(id, load.Outcome{Err: err})
		}
	}
}

func (s *submitter) end(id string, o load.Outcome) {
	s.mu.Lock()
	done, ok := s.waiting[id]
	delete(s.waiting, id)
	s.mu.Unlock()
	if ok {
		done(o)
	}
}

func (s *submitter) listen(ctx context.Context, sub *redis.PubSub) {
	for {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		for line := range strings.Lines(m.Payload) {
			id, stamp, _ := strings.Cut(strings.TrimSpace(line), " ")
			started, err := load.ParseStamp([]byte(stamp))
			s.end(id, load.Outcome{Started: started, Err: err})
		}
	}
}

// poll reads all outstanding tasks again and again.
func (s *submitter) poll(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ids := s.outstanding()
		for len(ids) > 0 {
			n := min(len(ids), pollBatch)
			s.read(ctx, ids[:n])
			ids = ids[n:]
		}
	}
}

func (s *submitter) outstanding() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.waiting))
	for id := range s.waiting {
		ids = append(ids, id)
	}
	return ids
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
			started, err := load.ParseStamp([]byte(stamp))
			s.end(ids[i], load.Outcome{Started: started, Err: err})
		case tasks.StateFailure:
			s.end(ids[i], load.Outcome{Err: errors.New("task failed: " + state.Error)})
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

// teller publishes results, many in one message, so that no handler waits for that.
type teller struct {
	client *redis.Client
	lines  chan string
	loop   sync.WaitGroup
}

func newTeller(client *redis.Client) *teller {
	t := &teller{client: client, lines: make(chan string, told)}
	t.loop.Go(t.run)
	return t
}

func (t *teller) tell(id, stamp string) { t.lines <- id + " " + stamp + "\n" }

func (t *teller) run() {
	for line := range t.lines {
		message := line
		for n := min(len(t.lines), toldAtOnce-1); n > 0; n-- {
			message += <-t.lines
		}
		if err := t.client.Publish(context.Background(), channel, message).Err(); err != nil {
			fmt.Fprintln(os.Stderr, "publish:", err) // the load gives these tasks up
		}
	}
}

// close ends the teller when no handler runs any more.
func (t *teller) close() error {
	close(t.lines)
	t.loop.Wait()
	return t.client.Close()
}
