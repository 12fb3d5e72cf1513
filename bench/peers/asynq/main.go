// Command asynq is github.com/hibiken/asynq as a peer of the benchmark: see bench/load for the
// roles.
//
//	asynq worker -redis URL -servers 2 -concurrency 32 -check 1ms -results notify
//	asynq load -redis URL -results notify
//
// asynq keeps a result in its task's hash and notifies no one. There are two ways to read it:
//
//   - poll: the submitter reads state and result of its outstanding tasks' hashes, many a round
//     trip. It calls HMGET itself, as Inspector.GetTaskInfo takes one task a call.
//   - notify: once the handler has written the result the worker publishes id and result, many in
//     one message, and the submitter listens. That is before asynq has marked the task as
//     completed, which is to asynq's advantage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/freeslot/freeslot/bench/load"
)

const (
	taskType  = "noop"
	queueName = "default"
	// kept is how long asynq keeps a completed task: longer than a run.
	kept    = time.Hour
	channel = "bench:results"
	// pollBatch bounds the tasks that one round trip of poll reads.
	pollBatch = 512
	notify    = "notify"
)

func main() { os.Exit(load.Main(startWorker, openLoad)) }

func startWorker(_ context.Context, args []string) (func() error, error) {
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	url := f.String("redis", "", "URL of Redis")
	servers := f.Int("servers", 1, "servers in this process; each takes one task after the other from Redis")
	concurrency := f.Int("concurrency", 32, "handlers of each server")
	check := f.Duration("check", time.Millisecond, "how long a server sleeps when its queue is empty")
	results := f.String("results", notify, "poll or notify")
	mean := f.Duration("mean", 0, "mean time that a job takes, exponentially distributed; 0: it ends at once")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	opt, err := redis.ParseURL(*url)
	if err != nil {
		return nil, err
	}
	opt.PoolSize = max(64, *concurrency)
	client := redis.NewClient(opt)
	publisher := load.NewPublisher(func(ctx context.Context, message string) error { return client.Publish(ctx, channel, message).Err() })
	handle := func(ctx context.Context, t *asynq.Task) error {
		stamp := load.Stamp()
		if err := load.Work(ctx, *mean); err != nil {
			return err
		}
		if _, err := t.ResultWriter().Write([]byte(stamp)); err != nil {
			return err
		}
		if *results == notify {
			publisher.Add(t.ResultWriter().TaskID(), stamp)
		}
		return nil
	}
	var started []*asynq.Server
	stop := func() error {
		for _, s := range started {
			s.Shutdown()
		}
		publisher.Close()
		return client.Close()
	}
	for range *servers {
		s := asynq.NewServer(connection{opt}, asynq.Config{Concurrency: *concurrency, TaskCheckInterval: *check, LogLevel: asynq.FatalLevel})
		if err := s.Start(asynq.HandlerFunc(handle)); err != nil {
			return nil, errors.Join(err, stop())
		}
		started = append(started, s)
	}
	return stop, nil
}

// connection gives asynq go-redis with a pool that is large enough for its handlers.
type connection struct{ opt *redis.Options }

// MakeRedisClient implements asynq.RedisConnOpt.
func (c connection) MakeRedisClient() any {
	own := *c.opt
	return redis.NewClient(&own)
}

// submitter enqueues tasks and waits for their results.
type submitter struct {
	client  *asynq.Client
	redis   *redis.Client
	payload []byte
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
	opt.PoolSize = 1024
	ctx, cancel := context.WithCancel(ctx)
	s := &submitter{
		client: asynq.NewClient(connection{opt}), redis: redis.NewClient(opt), payload: load.Payload(),
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

// Submit implements load.Submitter; asynq enqueues one task a call.
func (s *submitter) Submit(ctx context.Context, n int, done func(int, load.Outcome)) {
	for i := range n {
		id := uuid.NewString()
		s.waiting.Add(id, func(o load.Outcome) { done(i, o) })
		_, err := s.client.EnqueueContext(ctx, asynq.NewTask(taskType, s.payload), asynq.TaskID(id), asynq.Retention(kept), asynq.MaxRetry(0))
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
	answers := make([]*redis.SliceCmd, len(ids))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			answers[i] = p.HMGet(ctx, "asynq:{"+queueName+"}:t:"+id, "state", "result")
		}
		return nil
	})
	if err != nil {
		return // the next poll tries again
	}
	for i, a := range answers {
		values := a.Val()
		state, _ := values[0].(string)
		text, _ := values[1].(string)
		switch state {
		case "completed":
			s.waiting.EndStamp(ids[i], text)
		case "archived":
			s.waiting.End(ids[i], load.Outcome{Err: fmt.Errorf("task is %s", state)})
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
	return errors.Join(s.client.Close(), s.redis.Close())
}
