package client

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A tracker is one connection. It gets notices of the prefix's keys in every database, and no
// others.
func TestTracker(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	told := make(chan string, 100)
	c, err := Tracker(Config{URL: "redis://no-such-host.invalid:1", Name: "tracker"}, redis.Addrs()[0], "nodes:", func(keys []rueidis.RedisMessage) {
		if keys == nil {
			told <- "everything"
		}
		for _, key := range keys {
			text, err := key.ToString()
			told <- fmt.Sprint(text, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	subscribed := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { subscribed <- struct{}{} })
	ended := make(chan error, 1)
	go func() {
		ended <- c.Receive(hooked, c.B().Subscribe().Channel("keepalive").Build(), func(rueidis.PubSubMessage) {})
	}()
	defer func() { cancel(); <-ended }()
	<-subscribed
	if lines := listed(t, admin, "tracker"); len(lines) != 1 {
		t.Errorf("connections %q", lines)
	}
	for _, key := range []string{"other", "nodes:a"} {
		if err := admin.Do(deadline(t), admin.B().Set().Key(key).Value("v").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-told; got != "nodes:a<nil>" {
		t.Errorf("got notices of %s", got)
	}
	// It reconnects by itself, and tracks again.
	if err := admin.Do(deadline(t), admin.B().Arbitrary("CLIENT", "KILL", "TYPE", "pubsub").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	<-subscribed
	if got := <-told; got != "everything" {
		t.Errorf("got notices of %s", got)
	}
	if err := admin.Do(deadline(t), admin.B().Set().Key("nodes:b").Value("v").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != "nodes:b<nil>" {
		t.Errorf("got notices of %s", got)
	}
}

// Without an address the server of the URL is used.
func TestTrackerOfURL(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	open(t, func(cfg Config) (rueidis.Client, error) {
		return Tracker(cfg, "", "nodes:", func([]rueidis.RedisMessage) {})
	}, Config{URL: redis.URL(), Name: "tracker"})
	if lines := listed(t, redis.Client(t), "tracker"); len(lines) != 1 {
		t.Errorf("connections %q", lines)
	}
}

func TestTrackerRetryDelay(t *testing.T) {
	t.Parallel()
	if d := trackerRetryDelay(1, rueidis.Completed{}, fmt.Errorf("NOPERM: %w", rueidis.ErrNoCache)); d >= 0 {
		t.Errorf("tried again after %s where tracking is refused", d)
	}
	if d := trackerRetryDelay(1000, rueidis.Completed{}, errors.New("EOF")); d != resubscribeDelay {
		t.Errorf("tried again after %s", d)
	}
}
