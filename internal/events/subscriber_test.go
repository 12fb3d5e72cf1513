package events

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	return waittest.Receive(t, "the next one", ch)
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, what, cond)
}

// start runs a service until the end of the test.
func start(t *testing.T, s interface {
	Start(context.Context) error
	Stop(context.Context) error
},
) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
}

func stop(t *testing.T, s interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// client is what a replica subscribes through.
func client(t *testing.T, redis *redistest.Target) rueidis.Client {
	t.Helper()
	if redis.IsCluster() {
		return redis.Client(t)
	}
	c, err := redisclient.Subscriber(redisclient.Config{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func do(t *testing.T, c rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := c.Do(ctx, c.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.NonRedisError(); err != nil {
		t.Fatalf("%q: %v; want no error", args, err)
	}
	return r
}

func publish(t *testing.T, c rueidis.Client, channel, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Do(ctx, c.B().Publish().Channel(channel).Message(message).Build()).Error(); err != nil {
		t.Fatal(err)
	}
}

func TestSubscriberDeliversInOrder(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		// All by one server, as all scripts of a cell run on one.
		c, channel := redistest.At("one", false, redis.Addrs()[0]).Client(t), redis.Prefix(t)
		sub := NewSubscriber(client(t, redis), channel, false, zaptest.NewLogger(t))
		start(t, sub)
		receive(t, sub.Resets())
		for i := range 100 {
			publish(t, c, channel, strconv.Itoa(i))
			publish(t, c, channel+"-other", "not this one")
		}
		for i := range 100 {
			if got := receive(t, sub.Messages()); got != strconv.Itoa(i) {
				t.Fatalf("message %d is %q", i, got)
			}
		}
		if n := len(sub.Resets()); n != 0 {
			t.Errorf("%d resets without a reason", n)
		}
	})
}

// The connection is cut several times: a reset follows each time, and what is published after it
// arrives.
func TestSubscriberResetsWhenKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	c := redis.Client(t)
	sub := NewSubscriber(client(t, redis.Target), "channel", false, zaptest.NewLogger(t))
	start(t, sub)
	receive(t, sub.Resets())
	// 30 are enough to show a delay that grows with every one of them.
	for i := range 30 {
		if n, err := do(t, c, "CLIENT", "KILL", "TYPE", "pubsub").AsInt64(); err != nil || n != 1 {
			t.Fatalf("killed %d, %v", n, err)
		}
		receive(t, sub.Resets())
		publish(t, c, "channel", strconv.Itoa(i))
		if got := receive(t, sub.Messages()); got != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, got)
		}
	}
}

func TestSubscriberResetsAfterRestart(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	sub := NewSubscriber(client(t, redis.Target), "channel", false, zaptest.NewLogger(t))
	start(t, sub)
	receive(t, sub.Resets())
	redis.Kill()
	redis.Restart()
	receive(t, sub.Resets())
	publish(t, redis.Client(t), "channel", "after")
	if got := receive(t, sub.Messages()); got != "after" {
		t.Errorf("got %q", got)
	}
}

// What does not fit into the queue is dropped and counted; what fits is the
// oldest, in order, and reading makes room again.
func TestSubscriberQueueIsBounded(t *testing.T) {
	t.Parallel()
	const extra = 100
	redis := redistest.New(t).Target // with one subscription
	c, channel := redis.Client(t), redis.Prefix(t)
	sub := NewSubscriber(client(t, redis), channel, false, zaptest.NewLogger(t))
	start(t, sub)
	receive(t, sub.Resets())
	subscription := func() string {
		list, err := do(t, c, "CLIENT", "LIST", "TYPE", "pubsub").ToString()
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(list, " ")
		return id
	}
	before := sub.Dropped()
	for lost := true; lost; { // a busy machine can break the subscription, which loses messages
		for len(sub.Messages()) > 0 {
			<-sub.Messages()
		}
		before = sub.Dropped()
		was := subscription()
		cmds := make(rueidis.Commands, 0, queueLimit+extra)
		for i := range queueLimit + extra {
			cmds = append(cmds, c.B().Publish().Channel(channel).Message(strconv.Itoa(i)).Build())
		}
		for _, r := range c.DoMulti(t.Context(), cmds...) {
			if err := r.Error(); err != nil {
				t.Fatal(err)
			}
		}
		waittest.Until(t, "the drops", func() bool {
			all := sub.Dropped() == before+extra
			lost = !all && subscription() != was
			return all || lost
		}, func() any { return sub.Dropped() - before })
	}
	for i := range queueLimit {
		if got := receive(t, sub.Messages()); got != strconv.Itoa(i) {
			t.Fatalf("message %d is %q", i, got)
		}
	}
	publish(t, c, channel, "later")
	if got := receive(t, sub.Messages()); got != "later" {
		t.Errorf("got %q", got)
	}
	if n := sub.Dropped() - before; n != extra {
		t.Errorf("%d dropped, want %d", n, extra)
	}
}

// A subscription that Redis refuses is tried again until it is allowed, with a
// reason in the log and no reset before it stands.
func TestSubscriberRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	if err := do(t, admin, "ACL", "SETUSER", "replica", "on", ">secret", "+@all", "resetchannels").Error(); err != nil {
		t.Fatal(err)
	}
	c, err := redisclient.Subscriber(redisclient.Config{URL: "redis://replica:secret@" + redis.Addrs()[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	core, logs := observer.New(zapcore.DebugLevel)
	sub := NewSubscriber(c, "channel", false, zap.New(core))
	start(t, sub)
	eventually(t, "three refusals", func() bool { return logs.Len() >= 3 })
	if n := logs.FilterLevelExact(zapcore.WarnLevel).Len(); n != 1 {
		t.Errorf("%d lines in some milliseconds", n)
	}
	if got := fmt.Sprint(logs.All()[0].ContextMap()["error"]); got == "" || len(sub.Resets()) != 0 {
		t.Errorf("error %q, %d resets", got, len(sub.Resets()))
	}
	if sub.Subscribed() {
		t.Error("it seems to be subscribed")
	}
	if err := do(t, admin, "ACL", "SETUSER", "replica", "allchannels").Error(); err != nil {
		t.Fatal(err)
	}
	receive(t, sub.Resets())
	if !sub.Subscribed() {
		t.Error("it does not say that it is subscribed")
	}
	publish(t, admin, "channel", "allowed")
	if got := receive(t, sub.Messages()); got != "allowed" {
		t.Errorf("got %q", got)
	}
}

// Stop ends a subscriber in every state, at once; TestMain looks for what it left.
func TestSubscriberStop(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, redis *redistest.Server, sub *Subscriber){
		"never started": func(*testing.T, *redistest.Server, *Subscriber) {},
		"just started": func(t *testing.T, _ *redistest.Server, sub *Subscriber) {
			if err := sub.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"subscribed": func(t *testing.T, _ *redistest.Server, sub *Subscriber) {
			if err := sub.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			receive(t, sub.Resets())
		},
		"server hangs": func(t *testing.T, redis *redistest.Server, sub *Subscriber) {
			if err := sub.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			receive(t, sub.Resets())
			redis.Pause()
		},
		"server gone": func(t *testing.T, redis *redistest.Server, sub *Subscriber) {
			redis.Kill()
			if err := sub.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			sub := NewSubscriber(client(t, redis.Target), "channel", false, zaptest.NewLogger(t))
			prepare(t, redis, sub)
			stop(t, sub)
			stop(t, sub)
			if err := sub.Start(t.Context()); err != nil { // a start after the end returns no error and has no effect
				t.Error(err)
			}
			stop(t, sub)
		})
	}
}
