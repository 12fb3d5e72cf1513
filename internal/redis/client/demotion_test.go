package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// subscription is a Receive that runs until the test ends.
func subscription(t *testing.T, c rueidis.Client) (subscribed <-chan struct{}) {
	t.Helper()
	hook := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { hook <- struct{}{} })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Receive(ctx, c.B().Subscribe().Channel("channel").Build(), func(rueidis.PubSubMessage) {})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-hook
	return hook
}

func write(t *testing.T, c rueidis.Client) error {
	t.Helper()
	return c.Do(deadline(t), c.B().Set().Key("key").Value("v").Build()).Error()
}

func awaitWrite(t *testing.T, c rueidis.Client) {
	t.Helper()
	waittest.Succeeds(t, "a write", func() error { return write(t, c) })
}

// TestDemotion: a master becomes a replica while connections to it stay open, and the address leads
// to the new master. Every client of the process comes to that one, also those that only listen.
func TestDemotion(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	topology := inspect(t, Config{URL: address.URL(), Name: "swapped"})
	opened := make(map[string]rueidis.Client)
	for name, role := range map[string]Role{"commands": Commands, "subscriber": Subscriber, "agent": Agent} {
		clients, err := topology.Open(role)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(clients.Close)
		opened[name] = clients.For(0)
	}
	tracker, err := Tracker(topology.Config(0), "", "nodes:", func([]rueidis.RedisMessage) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracker.Close)
	events, tracked := subscription(t, opened["subscriber"]), subscription(t, tracker)
	dedicated, release := opened["agent"].Dedicate()
	t.Cleanup(release)
	for _, c := range []rueidis.Client{opened["commands"], opened["agent"]} {
		if err := write(t, c); err != nil {
			t.Fatal(err)
		}
	}

	redistest.Swap(t, servers.Server, servers.Replicas[0])
	address.Lead(servers.Replicas[0].Target)
	// One connection of many sees the refusal.
	if err := dedicated.Do(deadline(t), dedicated.B().Set().Key("key").Value("v").Build()).Error(); !isDemoted(err) {
		t.Fatalf("a write to the former master: %v, expected READONLY", err)
	}
	<-events
	<-tracked
	awaitWrite(t, opened["commands"])
	awaitWrite(t, opened["agent"])
	admin := servers.Client(t)
	waittest.Until(t, "the former master to be left by all", func() bool { return len(listed(t, admin, "swapped")) == 0 })
}

// TestDemotionOfAReader: a process that only reads leaves the former master, too.
func TestDemotionOfAReader(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	c := open(t, Commands, Config{URL: address.URL(), Name: "reader"})
	redistest.Swap(t, servers.Server, servers.Replicas[0])
	address.Lead(servers.Replicas[0].Target)
	admin := servers.Replicas[0].Client(t)
	waittest.Until(t, "a reader at the new master", func() bool {
		if err := c.Do(deadline(t), c.B().Get().Key("key").Build()).Error(); err != nil && !rueidis.IsRedisNil(err) {
			t.Log(err)
		}
		return len(listed(t, admin, "reader")) > 0
	})
}

// TestReplicaForGood: an address that leads to a replica keeps its connections, which answer reads.
func TestReplicaForGood(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	c, err := newWatchedOf(t, Config{URL: servers.Replicas[0].URL(), Name: "stays"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	events := subscription(t, c)
	id := func() int64 {
		n, err := c.Do(deadline(t), c.B().ClientId().Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := id()
	for range 3 {
		if err := write(t, c); !isDemoted(err) {
			t.Fatalf("a write to a replica: %v, expected READONLY", err)
		}
	}
	c.looks.Wait()
	if after := id(); after != before {
		t.Errorf("connection %d has replaced %d", after, before)
	}
	if n := len(events); n > 0 {
		t.Errorf("subscribed again %d times", n)
	}
}

// TestLooksGrowRare: while the address leads to a replica, looks come more and more seldom, and not at the same times as
// those of other processes. They are frequent again after a master was found, and after a time without refusals.
func TestLooksGrowRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// pauses are those between n looks while calls are refused all the time.
		pauses := func(l *links, n int) (out []time.Duration) {
			for last := time.Now(); len(out) < n; time.Sleep(time.Millisecond) {
				if _, ok := l.begin(); ok {
					out = append(out, time.Since(last))
					last = time.Now()
				}
			}
			return out
		}
		var l, other links
		got := pauses(&l, 20)
		if got[0] != 0 {
			t.Errorf("the first look came after %s, expected it at once", got[0])
		}
		limit := firstLookPause
		for i, pause := range got[1:] {
			if pause < limit/2 || pause > limit+time.Millisecond {
				t.Errorf("pause %d is %s, expected %s to %s", i+1, pause, limit/2, limit)
			}
			limit = min(2*limit, longestLookPause)
		}
		if same := pauses(&other, 20); slices.Equal(got, same) {
			t.Errorf("two processes look after the same pauses %v", got)
		}
		l.found()
		if after := pauses(&l, 2); after[0] > firstLookPause+time.Millisecond || after[1] > firstLookPause+time.Millisecond {
			t.Errorf("pauses of %v after a master was found, expected at most %s", after, firstLookPause)
		}
		pauses(&l, 10)
		time.Sleep(time.Hour)
		if after := pauses(&l, 2); after[0] != 0 || after[1] > firstLookPause+time.Millisecond {
			t.Errorf("pauses of %v after an hour, expected none and at most %s", after, firstLookPause)
		}
	})
}

func newWatchedOf(t *testing.T, cfg Config) (*watched, error) {
	t.Helper()
	c, err := Agent(cfg)
	if err != nil {
		return nil, err
	}
	w, ok := c.(*watched)
	if !ok {
		return nil, errors.New("the client does not look for a new master")
	}
	return w, nil
}

func TestIsDemoted(t *testing.T) {
	t.Parallel()
	c := redistest.Shared(t).Client(t)
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica. script: f00, on @user_script:1.": true,
		"MASTERDOWN Link with MASTER is down":                                                   true,
		"UNBLOCKED force unblock from blocking operation, instance state changed":               true,
		"MISCONF Errors writing to the AOF file":                                                false,
		"NOREPLICAS Not enough good replicas to write.":                                         false,
		"ERR user_script:1: READONLY":                                                           false,
	} {
		err := c.Do(deadline(t), c.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()).Error()
		if got := isDemoted(err); got != want {
			t.Errorf("%s: %t, expected %t", text, got, want)
		}
	}
	if isDemoted(nil) || isDemoted(context.DeadlineExceeded) {
		t.Error("no answer counts as one of a replica")
	}
}
