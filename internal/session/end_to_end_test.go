package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/events"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/wire"
	"github.com/freeslot/freeslot/worker"
)

// service has the methods of every part of the system.
type service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

func start(t *testing.T, s service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

// system is a replica without its listener on a real Redis, with one node that runs the services of
// docs/protocol.md.
func system(t *testing.T, slots int) *dispatch.Dispatcher {
	t.Helper()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	redis.Age(t, prefix+":version:nodes")
	d := realDispatcher(t, redis, prefix, "replica-1", func() {
		w, err := worker.New(worker.Config{
			RedisURL: redis.URL(), KeyPrefix: prefix,
			Node:        freeslot.Node{ID: "node-1", MaxConcurrency: slots, Languages: freeslot.Languages{TTS: []string{"en"}}},
			StopTimeout: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("tts", func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil })
		w.Handle("fail", func(context.Context, *worker.Job) (any, error) { return nil, errors.New("it broke") })
		w.Handle("flaky", func(context.Context, *worker.Job) (any, error) {
			return nil, worker.RetryAfter(errors.New("it broke"), time.Millisecond)
		})
		w.Handle("talk", func(ctx context.Context, job *worker.Job) (any, error) {
			if err := job.Progress(map[string]int{"done": 70}); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w.Handle("hold", func(ctx context.Context, _ *worker.Job) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
		start(t, w)
	})
	return d
}

// realDispatcher starts a dispatcher. before registers nodes, so that its cache knows them from the
// start.
func realDispatcher(t *testing.T, redis *redistest.Target, prefix, replica string, before func()) *dispatch.Dispatcher {
	t.Helper()
	commands, err := redisclient.Commands(redisclient.Config{URL: redis.URL(), Name: replica})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(commands.Close)
	subscriber, err := redisclient.Subscriber(redisclient.Config{URL: redis.URL(), Name: replica})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(subscriber.Close)
	cl, err := cell.New(cell.Config{Layout: cell.Layout{Prefix: prefix}, CallTimeout: patience, HeartbeatLimit: time.Hour}, commands, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	start(t, cl)
	before()
	feed := cache.Feed{Source: cl, Events: events.NewSubscriber(subscriber, cl.Layout().NodeEvents(), false, zap.NewNop())}
	ca := cache.New(cache.Config{}, []cache.Feed{feed}, zap.NewNop(), nil)
	start(t, ca)
	d, err := dispatch.New(dispatch.Config{Replica: replica, SubmitTimeout: patience}, cell.NewSet(cl), ca, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	start(t, d)
	return d
}

// TestProtocolPageForReal replays docs/protocol.md with all parts of a replica.
func TestProtocolPageForReal(t *testing.T) {
	t.Parallel()
	replayAll(t, func(t *testing.T) *server { return serve(t, Config{}, system(t, 100)) })
}

// TestAttachAtAnotherReplica: the result of a job goes to the session that attached last, at any
// replica.
func TestAttachAtAnotherReplica(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	release := make(chan struct{})
	register := func() {
		w, err := worker.New(worker.Config{RedisURL: redis.URL(), KeyPrefix: prefix, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("gate", func(context.Context, *worker.Job) (any, error) { <-release; return 7, nil })
		start(t, w)
	}
	first := serve(t, Config{}, realDispatcher(t, redis, prefix, "replica-1", register)).connect("")
	second := serve(t, Config{}, realDispatcher(t, redis, prefix, "replica-2", func() {})).connect("")
	second.vars = first.vars
	first.send(`{"type":"submit","id":"r1","job":{"service":"gate"}}`)
	first.expect(`{"type":"accepted","id":"r1","job_id":"…job"}`)
	first.expect(`{"type":"assigned","job_id":"…job","node":"node-1","attempt":1,"assigned_at_ms":"…"}`)
	second.send(`{"type":"attach","id":"a","job_id":"…job"}`)
	second.expect(`{"type":"status","id":"a","job":{"job_id":"…job","tenant":"acme","service":"gate","class":"…","state":"running","node":"node-1","attempt":1,"slots":1,"submitted_at_ms":"…","assigned_at_ms":"…"}}`)
	first.expect(`{"type":"detached","job_id":"…job"}`)
	close(release)
	second.expect(`{"type":"result","job":{"job_id":"…job","tenant":"acme","service":"gate","class":"…","state":"succeeded","node":"node-1","attempt":1,"slots":1,"result":7,"submitted_at_ms":"…","assigned_at_ms":"…","finished_at_ms":"…"}}`)
}

// TestManyJobsForReal: sessions and batches at once. Every accepted job gets its own result, in
// order.
func TestManyJobsForReal(t *testing.T) {
	t.Parallel()
	const sessions, batch = 8, 50
	s := serve(t, Config{}, system(t, sessions*batch))
	var wg sync.WaitGroup
	for i := range sessions {
		p := s.connect([]string{"", "?frames=batch"}[i%2])
		wg.Go(func() {
			request := []byte(`{"type":"submit","id":"b","jobs":[`)
			for j := range batch {
				if j > 0 {
					request = append(request, ',')
				}
				request = fmt.Appendf(request, `{"service":"tts","payload":"%d/%d"}`, i, j)
			}
			p.send(string(request) + "]}")
			want := map[string]string{}
			for results := 0; results < batch; {
				err := wire.DecodeMessages(p.readFrame(), func(m *wire.Message) {
					switch m.Type {
					case wire.TypeAccepted:
						want[m.JobID] = fmt.Sprintf(`"%d/%d"`, i, m.Index)
					case wire.TypeResult:
						results++
						if string(m.Job.Result) != want[m.Job.ID] {
							t.Errorf("job %s: result %s, want %s", m.Job.ID, m.Job.Result, want[m.Job.ID])
						}
					case wire.TypeError:
						results++
						t.Error(m.Error)
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
