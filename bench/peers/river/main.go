// Command river is github.com/riverqueue/river, on Postgres, as a peer of the benchmark: see
// bench/load for the roles.
//
//	river worker -postgres URL -concurrency 200 -cooldown 5ms -results batch
//	river load -postgres URL
//
// A handler records its result as the job's output. River reports a job's end only to the process
// that ran it, so the submitter listens to NOTIFY. There are two ways:
//
//   - batch: River completes jobs in the table many at a time, every 50 to 250 ms, and reports to
//     the worker's process, which passes it on, many jobs in one NOTIFY. This is River's default
//     and takes the fewest writes.
//   - tx: the handler completes its job itself and notifies, in one transaction a job. The result
//     is there at once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/freeslot/freeslot/bench/load"
)

const (
	channel = "bench_results"
	// notifyBytes is the most that one NOTIFY carries: Postgres takes less than 8,000.
	notifyBytes = 7900
	// eventsKept is how many completions may wait to be passed on: River drops what does not fit.
	eventsKept = 100_000
	fetchPoll  = 20 * time.Millisecond
	stopLimit  = 20 * time.Second
)

func main() { os.Exit(load.Main(startWorker, openLoad)) }

// jobArgs carry a key by which the submitter knows its job, since the fastest insert returns no
// ids.
type jobArgs struct {
	Key     string          `json:"key"`
	Payload json.RawMessage `json:"payload"`
}

// Kind implements river.JobArgs.
func (jobArgs) Kind() string { return "noop" }

type noop struct {
	river.WorkerDefaults[jobArgs]
	pool *pgxpool.Pool
	tx   bool
}

// Work implements river.Worker.
func (w *noop) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	stamp := load.Stamp()
	if err := river.RecordOutput(ctx, stamp); err != nil || !w.tx {
		return err
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", channel, job.Args.Key+" "+stamp)
		return err
	})
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func startWorker(ctx context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	url := f.String("postgres", "", "URL of Postgres")
	concurrency := f.Int("concurrency", 200, "jobs that run at a time")
	cooldown := f.Duration("cooldown", 5*time.Millisecond, "shortest time between two fetches")
	conns := f.Int("connections", 10, "connections to Postgres")
	results := f.String("results", "batch", "batch or tx")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, *url, *conns)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	tx := *results == "tx"
	river.AddWorker(workers, &noop{pool: pool, tx: tx})
	client, err := river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *concurrency}},
		Workers:       workers,
		FetchCooldown: *cooldown,
		// Jobs come by NOTIFY; this is for those that fall into the cooldown of the
		// submitter's.
		FetchPollInterval: max(*cooldown, fetchPoll),
		Logger:            quiet(),
	})
	if err != nil {
		return nil, err
	}
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed}, ChanSize: eventsKept,
	})
	var passing sync.WaitGroup
	passing.Go(func() { passOn(ctx, pool, events, tx) })
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		err := client.Stop(ctx)
		unsubscribe()
		passing.Wait()
		pool.Close()
		return err
	}, nil
}

func openPool(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns) //nolint:gosec // small
	return pgxpool.NewWithConfig(ctx, cfg)
}

// passOn notifies of completions, as many in one NOTIFY as there are by then, unless the handlers
// have notified already.
func passOn(ctx context.Context, pool *pgxpool.Pool, events <-chan *river.Event, notified bool) {
	for e := range events {
		if notified && e.Kind == river.EventKindJobCompleted {
			continue
		}
		var b strings.Builder
		add(&b, e)
		for more := true; more && b.Len() < notifyBytes-200; {
			select {
			case e, ok := <-events:
				if ok {
					add(&b, e)
				}
				more = ok
			default:
				more = false
			}
		}
		if _, err := pool.Exec(ctx, "SELECT pg_notify($1, $2)", channel, b.String()); err != nil {
			fmt.Fprintln(os.Stderr, "notify:", err)
		}
	}
}

// add writes a line of key and result.
func add(b *strings.Builder, e *river.Event) {
	var a jobArgs
	if json.Unmarshal(e.Job.EncodedArgs, &a) != nil {
		return
	}
	fmt.Fprintf(b, "%s %s\n", a.Key, e.Job.Output())
}

// submitter inserts jobs and listens for their results.
type submitter struct {
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	cancel  context.CancelFunc
	readers sync.WaitGroup
	next    atomic.Int64
	waiting load.Pending
}

func openLoad(ctx context.Context, args []string) (load.Submitter, error) {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	url := f.String("postgres", "", "URL of Postgres")
	conns := f.Int("connections", 10, "connections to Postgres")
	cooldown := f.Duration("cooldown", 5*time.Millisecond, "shortest time between two NOTIFYs of new jobs")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	pool, err := openPool(ctx, *url, *conns+1)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet(), FetchCooldown: *cooldown})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &submitter{pool: pool, client: client, cancel: cancel}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		conn.Release()
		return nil, errors.Join(err, s.Close())
	}
	s.readers.Go(func() {
		defer conn.Release()
		s.listen(ctx, conn.Conn())
	})
	return s, nil
}

// Submit implements load.Submitter: one insert for one job, one COPY for many.
func (s *submitter) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	keys := make([]string, n)
	params := make([]river.InsertManyParams, n)
	for i := range n {
		keys[i] = strconv.FormatInt(s.next.Add(1), 36)
		params[i].Args = jobArgs{Key: keys[i], Payload: load.Payload()}
		s.waiting.Add(keys[i], func(o load.Outcome) { done(i, o) })
	}
	var err error
	if n == 1 {
		_, err = s.client.Insert(ctx, params[0].Args, nil)
	} else {
		_, err = s.client.InsertManyFast(ctx, params)
	}
	if err != nil {
		for _, key := range keys {
			s.waiting.End(key, load.Outcome{Err: err})
		}
	}
}

func (s *submitter) listen(ctx context.Context, conn *pgx.Conn) {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		s.waiting.Published(n.Payload)
	}
}

// Close implements load.Submitter.
func (s *submitter) Close() error {
	s.cancel()
	s.readers.Wait()
	s.pool.Close()
	return nil
}
