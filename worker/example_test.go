package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
	"github.com/freeslot/freeslot/worker/gpu"
)

// A node with one service, from start to stop.
func Example() {
	redisURL, submit, done := exampleFleet() // a Redis and a scheduler
	defer done()

	w, err := worker.New(worker.Config{
		RedisURL: redisURL,
		Node: freeslot.Node{
			ID:             "node-1",
			MaxConcurrency: 4,
			Languages:      freeslot.Languages{TTS: []string{"de", "en"}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Handle("upper", func(_ context.Context, job *worker.Job) (any, error) {
		var text string
		if err := json.Unmarshal(job.Payload, &text); err != nil {
			return nil, &freeslot.JobError{Code: "bad_payload", Message: err.Error()}
		}
		return strings.ToUpper(text), nil
	})

	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()

	fmt.Println(submit("upper", `"hello"`))
	fmt.Println(submit("upper", `42`))

	cancel()
	fmt.Println("stopped:", <-ran)
	// Output:
	// succeeded "HELLO"
	// failed bad_payload: json: cannot unmarshal number into Go value of type string
	// stopped: <nil>
}

// A long handler watches its context, which has the reason for its end.
func ExampleHandlerFunc() {
	var handler worker.HandlerFunc = func(ctx context.Context, job *worker.Job) (any, error) {
		select {
		case <-time.After(time.Hour): // the work
			return map[string]int{"attempt": job.Attempt}, nil
		case <-ctx.Done():
			// No client waits for the result any more.
			return nil, context.Cause(ctx)
		}
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(worker.ErrCancelled)
	_, err := handler(ctx, &worker.Job{ID: "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Attempt: 1})
	fmt.Println(err, errors.Is(err, worker.ErrCancelled))
	// Output:
	// worker: the job was cancelled true
}

// A handler marks the errors that another attempt may mend.
func ExampleRetryable() {
	busy := &freeslot.JobError{Code: "busy", Message: "no licence is free"}
	var handler worker.HandlerFunc = func(_ context.Context, job *worker.Job) (any, error) {
		if len(job.Payload) == 0 {
			return nil, errors.New("there is nothing to do") // the job fails
		}
		if job.Attempt == 1 {
			return nil, worker.RetryAfter(busy, 10*time.Second)
		}
		return nil, worker.Retryable(fmt.Errorf("after %d attempts: %w", job.Attempt, busy))
	}

	_, err := handler(context.Background(), &worker.Job{Attempt: 2, Payload: json.RawMessage(`1`)})
	fmt.Println(err)
	fmt.Println(errors.Is(err, busy))
	// Output:
	// after 2 attempts: busy: no licence is free
	// true
}

func ExampleConfig_Validate() {
	cfg := worker.Config{
		RedisURL:          "redis://127.0.0.1:6379",
		Node:              freeslot.Node{ID: "node 1", MaxConcurrency: 4},
		HeartbeatInterval: time.Millisecond,
	}
	fmt.Println(cfg.WithDefaults().Validate())
	// Output:
	// invalid_argument: node.node_id has ' ' at position 4, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit
	// heartbeat_interval is 1ms, expected at least 100ms
}

// queue is a collector of the program's own: the length of its queue.
type queue struct{ length atomic.Int64 }

func (q *queue) Type() string                   { return "queue" }
func (q *queue) Available(context.Context) bool { return true }
func (q *queue) Cost() worker.Cost              { return worker.CostLow }
func (q *queue) Collect(context.Context) (worker.Metrics, error) {
	return worker.Metrics{"length": q.length.Load()}, nil
}

// A program adds a figure to its heartbeats. Here it is sent at once when it has doubled.
func ExampleWorker_Collect() {
	thresholds := worker.DefaultThresholds()
	thresholds["queue.length"] = worker.Threshold{Kind: worker.Percent, Value: 100}
	w, err := worker.New(worker.Config{
		RedisURL:   "redis://127.0.0.1:6379",
		Node:       freeslot.Node{ID: "node-1", MaxConcurrency: 4},
		Thresholds: thresholds,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	q := new(queue)
	w.Collect(q)

	q.length.Store(3)
	fmt.Println(q.Collect(context.Background()))
	// Output:
	// map[length:3] <nil>
}

// The collectors of nodeagent take one line each.
func ExampleDiskCollector() {
	w, err := worker.New(worker.Config{
		RedisURL: "redis://127.0.0.1:6379",
		Node:     freeslot.Node{ID: "node-1", MaxConcurrency: 4},
		Collectors: append(worker.DefaultCollectors(),
			worker.Collection{Collector: worker.DiskCollector("/srv/models"), Interval: 5 * time.Minute},
			worker.Collection{Collector: gpu.Collector()},
		),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Collect(worker.NetworkCollector("eth0"))
	w.Collect(worker.ProcessCollector())
	w.Collect(worker.RedisCollector(w))
	fmt.Println("memory, cpu, disk, gpu, network, process and redis are collected")
	// Output:
	// memory, cpu, disk, gpu, network, process and redis are collected
}

// A running node gets another service, and one slot more.
func ExampleWorker_Reconfigure() {
	w, err := worker.New(worker.Config{RedisURL: "redis://127.0.0.1:6379", Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}})
	if err != nil {
		fmt.Println(err)
		return
	}
	upper := func(_ context.Context, job *worker.Job) (any, error) {
		return strings.ToUpper(string(job.Payload)), nil
	}
	w.Handle("upper", upper)
	lower := func(_ context.Context, job *worker.Job) (any, error) {
		return strings.ToLower(string(job.Payload)), nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = w.Reconfigure(ctx, freeslot.Node{ID: "node-1", MaxConcurrency: 5}, map[string]worker.HandlerFunc{"upper": upper, "lower": lower})
	fmt.Println(err)
	fmt.Println(w.SetHealthy("lower", false)) // until its model is loaded
	// Output:
	// <nil>
	// <nil>
}
