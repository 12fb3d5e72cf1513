package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/identity"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/session"
	"github.com/freeslot/freeslot/worker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	err := system.stop()
	if code == 0 {
		err = errors.Join(err, goleak.Find())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// system is a replica and a node on a Redis of their own, for the examples, which have no
// testing.TB for clean-ups. The first example starts it.
var system realSystem

type realSystem struct {
	once  sync.Once
	url   string
	err   error
	stops []func(context.Context) error
}

// replicaURL is where the system's replica listens.
func replicaURL() string {
	system.once.Do(func() { system.err = system.start() })
	if system.err != nil {
		panic(system.err)
	}
	return system.url
}

func (s *realSystem) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	redis := redisserver.New(redisserver.Config{})
	if err := s.run(ctx, redis); err != nil {
		return err
	}
	commands, err := redisclient.Commands(redisclient.Config{URL: redis.URL()})
	if err != nil {
		return err
	}
	s.close(commands.Close)
	subscriber, err := redisclient.Subscriber(redisclient.Config{URL: redis.URL()})
	if err != nil {
		return err
	}
	s.close(subscriber.Close)
	cl, err := cell.New(cell.Config{CallTimeout: patience, HeartbeatLimit: time.Hour}, commands, zap.NewNop(), nil)
	if err != nil {
		return err
	}
	if err := s.run(ctx, cl); err != nil {
		return err
	}
	// Of a new system it is not known yet which nodes it has.
	old := commands.B().Hset().Key(cl.Layout().Version()).FieldValue().FieldValue("generation", "old").FieldValue("revision", "1")
	if err := commands.Do(ctx, old.Build()).Error(); err != nil {
		return err
	}
	if err := s.startNode(ctx, redis.URL()); err != nil {
		return err
	}
	feed := cache.Feed{Source: cl, Events: events.NewSubscriber(subscriber, cl.Layout().NodeEvents(), false, zap.NewNop())}
	ca := cache.New(cache.Config{}, []cache.Feed{feed}, zap.NewNop(), nil)
	if err := s.run(ctx, ca); err != nil {
		return err
	}
	d, err := dispatch.New(dispatch.Config{Replica: "replica-1", SubmitTimeout: patience}, cell.NewSet(cl), ca, zap.NewNop(), nil)
	if err != nil {
		return err
	}
	if err := s.run(ctx, d); err != nil {
		return err
	}
	return s.listen(d)
}

func (s *realSystem) startNode(ctx context.Context, redisURL string) error {
	w, err := worker.New(worker.Config{RedisURL: redisURL, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 100}})
	if err != nil {
		return err
	}
	w.Handle("reverse", func(_ context.Context, job *worker.Job) (any, error) {
		text := slices.Clone(job.Payload)
		slices.Reverse(text)
		return text, nil
	})
	w.Handle("sleep", func(ctx context.Context, _ *worker.Job) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	w.Handle("talk", func(ctx context.Context, job *worker.Job) (any, error) {
		if err := job.Progress([]int{1, 2}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return s.run(ctx, w)
}

func (s *realSystem) listen(d *dispatch.Dispatcher) error {
	sessions, err := session.New(session.Config{Replica: "replica-1"}, d, identity.NewAuthenticator(nil, "default", true), zap.NewNop(), nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: sessions, ReadHeaderTimeout: time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	s.stops = append(s.stops, sessions.Stop, func(context.Context) error {
		err := server.Close()
		<-served
		return err
	})
	s.url = "ws://" + listener.Addr().String()
	return nil
}

// run starts a part of the system, which stop stops.
func (s *realSystem) run(ctx context.Context, part interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
},
) error {
	s.stops = append(s.stops, part.Stop)
	return part.Start(ctx)
}

func (s *realSystem) close(f func()) {
	s.stops = append(s.stops, func(context.Context) error { f(); return nil })
}

func (s *realSystem) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	for _, stop := range slices.Backward(s.stops) {
		err = errors.Join(err, stop(ctx))
	}
	return err
}
