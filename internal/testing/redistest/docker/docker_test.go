package docker

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	short = 200 * time.Millisecond
	long  = 2 * time.Minute
)

// set tries once with the given limit.
func set(c rueidis.Client, key, value string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.Do(ctx, c.B().Set().Key(key).Value(value).Build()).Error()
}

func mustSet(t *testing.T, c rueidis.Client, key, value string) {
	t.Helper()
	if err := set(c, key, value, long); err != nil {
		t.Fatalf("SET %s: %v; want no error", key, err)
	}
}

// mustGet lets the client reconnect: reads are retried until the deadline.
func mustGet(t *testing.T, c rueidis.Client, key, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	got, err := c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
	if err != nil || got != want {
		t.Fatalf("GET %s: got %q, %v; want %q", key, got, err, want)
	}
}

// mustTimeOut expects that the command ends at its deadline, without an answer.
func mustTimeOut(t *testing.T, c rueidis.Client) {
	t.Helper()
	err := set(c, "lost", "value", short)
	// A client that has noticed the loss may be in the middle of a dial, which has the same deadline.
	timeout, ok := errors.AsType[net.Error](err)
	if !errors.Is(err, context.DeadlineExceeded) && !(ok && timeout.Timeout()) {
		t.Errorf("got %v, want that the deadline is exceeded", err)
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	redis := New(t)
	for _, target := range []*redistest.Target{redis.Target(), redis.Inside()} {
		c := target.Client(t)
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		if got, err := c.Do(ctx, c.B().Ping().Build()).ToString(); err != nil || got != "PONG" {
			t.Errorf("%s: got %q, %v", target.URL(), got, err)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	redis := New(t)
	c := redis.Target().Client(t)
	mustSet(t, c, "key", "value")
	redis.Pause()
	mustTimeOut(t, c)
	redis.Unpause()
	mustGet(t, c, "key", "value")
}

func TestKillKeepsData(t *testing.T) {
	t.Parallel()
	redis := New(t)
	c, inside := redis.Target().Client(t), redis.Inside()
	mustSet(t, c, "key", "value")
	redis.Kill()
	if err := set(c, "key", "other", short); err == nil {
		t.Error("a killed server answered")
	}
	redis.Start()
	mustGet(t, c, "key", "value")
	mustGet(t, inside.Client(t), "key", "value")
}

func TestPartition(t *testing.T) {
	t.Parallel()
	redis := New(t)
	outside, inside := redis.Target().Client(t), redis.Inside().Client(t)
	mustSet(t, inside, "key", "value")
	redis.Disconnect()
	mustTimeOut(t, inside)
	redis.Connect()
	mustGet(t, inside, "key", "value")
	mustGet(t, outside, "key", "value")
}

func TestRunOn(t *testing.T) {
	t.Parallel()
	opt, err := rueidis.ParseURL(RunOn(t))
	if err != nil {
		t.Fatal(err)
	}
	opt.DisableCache = true
	c, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustSet(t, c, "key", "value")
}

func TestPurgeTwice(t *testing.T) {
	t.Parallel()
	redis := New(t)
	redis.Purge()
	redis.Purge()
}
