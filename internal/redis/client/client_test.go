package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

var roles = map[string]func(Config) (rueidis.Client, error){
	"commands": Commands, "agent": Agent, "subscriber": Subscriber,
}

func open(t *testing.T, role func(Config) (rueidis.Client, error), c Config) rueidis.Client {
	t.Helper()
	client, err := role(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// listed returns the lines of CLIENT LIST with this name.
func listed(t *testing.T, c rueidis.Client, name string) []string {
	t.Helper()
	text, err := c.Do(deadline(t), c.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^.* name=`+name+` .*$`).FindAllString(text, -1)
}

func TestNames(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	for role, openRole := range roles {
		open(t, openRole, Config{URL: redis.URL(), Name: role})
		if lines := listed(t, admin, role); len(lines) != 1 {
			t.Errorf("%s: connections %q", role, lines)
		}
	}
	open(t, Commands, Config{URL: redis.URL() + "&client_name=ignored"})
	if lines := listed(t, admin, "freeslot"); len(lines) != 1 {
		t.Errorf("without a name: %q", lines)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	c := open(t, Commands, Config{URL: "redis://" + redis.Addrs()[0] + "/3"})
	if err := c.Do(deadline(t), c.B().Set().Key("key").Value("v").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	admin := redis.Client(t)
	if err := admin.Do(deadline(t), admin.B().Get().Key("key").Build()).Error(); !rueidis.IsRedisNil(err) {
		t.Errorf("database 0 has it: %v", err)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 4: 4, 8: 8} {
		name := "c" + string(rune('0'+n))
		c := open(t, Commands, Config{URL: redis.URL(), Connections: n, Name: name})
		// A connection is dialled when the first command with a key needs it.
		for range 400 {
			if err := c.Do(deadline(t), c.B().Exists().Key("key").Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(listed(t, admin, name)); got != want {
			t.Errorf("%d: %d connections, want %d", n, got, want)
		}
	}
	for _, n := range []int{-1, 3, 6, 16, 1024} {
		if c, err := Commands(Config{URL: redis.URL(), Connections: n}); err == nil || !strings.Contains(err.Error(), "expected 1, 2, 4 or 8") {
			t.Errorf(`%d: %v, %v; want an error, strings.Contains(err.Error(), "expected 1, 2, 4 or 8")`, n, c, err)
		}
	}
}

// Agents are many: an agent holds three connections at most, for any number of blocked calls.
func TestAgentConnections(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	c := open(t, Agent, Config{URL: redis.URL(), Name: "agent"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	for range 5 {
		calls.Go(func() {
			if err := c.Do(ctx, c.B().Blpop().Key("nothing").Timeout(0).Build()).Error(); !errors.Is(err, context.Canceled) {
				t.Errorf("blocking read: %v", err)
			}
		})
	}
	waittest.Until(t, "connections of the blocking reads", func() bool { return len(listed(t, admin, "agent")) >= 3 })
	// Other calls can use the pipelined connection meanwhile.
	if err := c.Do(deadline(t), c.B().Ping().Build()).Error(); err != nil {
		t.Error(err)
	}
	if lines := listed(t, admin, "agent"); len(lines) != 3 {
		t.Errorf("%d connections", len(lines))
	}
	cancel()
	calls.Wait()
}

// A replica notices a silent server by itself. That bounds all waits without a deadline of their own.
func TestReplicaNoticesHungServer(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	commands := open(t, Commands, Config{URL: redis.URL()})
	subscriber := open(t, Subscriber, Config{URL: redis.URL()})

	ended := make(chan error, 1)
	subscribed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { subscribed <- struct{}{} })
	hooked = rueidis.WithOnReceiveReturnHook(hooked, func(err error, _ rueidis.CommandClient) error {
		select {
		case ended <- err:
		default:
		}
		return err
	})
	var receiving sync.WaitGroup
	receiving.Go(func() {
		_ = subscriber.Receive(hooked, subscriber.B().Subscribe().Channel("channel").Build(), func(rueidis.PubSubMessage) {})
	})
	defer receiving.Wait()
	defer cancel()
	<-subscribed

	redis.Pause()
	defer redis.Resume()
	// A write, because reads are repeated until their context ends.
	if err := commands.Do(t.Context(), commands.B().Set().Key("key").Value("v").Build()).Error(); err == nil {
		t.Error("a paused server answered")
	}
	if err := waittest.Receive(t, "the end of the subscription", ended); err == nil {
		t.Error("the subscription ended without an error")
	}
}

// TestSubscriptionLearnsOfHungServer: a call that is not answered ends the subscriptions of the
// process, too, whose own pings are seldom. Here these pings have all the time in the world.
func TestSubscriptionLearnsOfHungServer(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	cfg := inspect(t, Config{URL: redis.URL()}).Config(0)
	commands := open(t, Commands, cfg)
	events := subscription(t, open(t, func(cfg Config) (rueidis.Client, error) {
		return cfg.open(func(opt *rueidis.ClientOption) {
			cfg.quieten(opt)
			opt.ConnWriteTimeout = time.Hour
			opt.RetryDelay = retryDelay
		})
	}, cfg))

	redis.Pause()
	if err := write(t, commands); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write to a paused server: %v, expected the end of its time", err)
	}
	redis.Resume()
	waittest.Receive(t, "the next subscription", events)
}

// closing is a connection that can only be closed.
type closing struct {
	told func()
	net.Conn
}

func (c closing) Close() error { c.told(); return nil }

// TestQuietLinks: a quiet connection is closed only if it heard nothing since the call.
func TestQuietLinks(t *testing.T) {
	t.Parallel()
	all := links{open: make(map[*link]struct{})}
	now := time.Now()
	closed := make(map[string]bool)
	for name, l := range map[string]*link{
		"busy":          {},
		"quiet, spoken": {quiet: true},
		"quiet, silent": {quiet: true},
	} {
		l.of, l.Conn = &all, closing{func() { closed[name] = true }, nil}
		l.heard.Store(now.Add(-2 * replicaSilence).UnixNano())
		if name == "quiet, spoken" {
			l.heard.Store(now.Add(time.Hour).UnixNano())
		}
		all.open[l] = struct{}{}
	}
	all.silent()
	if want := map[string]bool{"quiet, silent": true}; !maps.Equal(closed, want) {
		t.Errorf("closed %v, expected %v", closed, want)
	}
}

// Without a server every opening fails in time and leaves nothing behind.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	redis.Kill()
	for role, openRole := range roles {
		c, err := openRole(Config{URL: redis.URL()})
		if err == nil {
			c.Close()
			t.Errorf("%s: no error", role)
		}
	}
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for attempt := range 100 {
		if d := retryDelay(attempt, rueidis.Completed{}, errors.New("EOF")); d != resubscribeDelay {
			t.Fatalf("attempt %d: %s", attempt, d)
		}
		if d := retryDelay(attempt, rueidis.Completed{}, refused); d != redialDelay {
			t.Fatalf("attempt %d: %s", attempt, d)
		}
	}
}

func TestGoodURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://h":                    "[h:6379]",
		"redis://:7105":                "[localhost:7105]",
		"redis://[::1]:7105":           "[[::1]:7105]",
		"rediss://h/0?skip_verify":     "[h:6379]",
		"rediss://h?skip_verify=false": "[h:6379]",
		"unix:///run/redis.sock?db=1":  "[/run/redis.sock]",
		"redis://[::1]/2?dial_timeout=1s&write_timeout=1s&protocol=3&client_cache=0&max_retries=0&client_name=x": "[[::1]:6379]",
		"redis://h?db=0&protocol=2&client_cache=1":                                                               "[h:6379]",
		"rediss://u:p%23w@h:1?addr=g:2&addr=[::1]:3&skip_verify=true&master_set=m":                               "[h:1 g:2 [::1]:3]",
	} {
		opt, err := Config{URL: raw}.option()
		if got := fmt.Sprint(opt.InitAddress); err != nil || got != want || CheckURL(raw) != nil {
			t.Errorf("%s: addresses %s, expected %s; %v", raw, got, want, err)
		}
	}
}

// The password of a mistyped URL never gets into a log.
func TestBadURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://user:secret@host:port":      "expected redis://",
		"redis://user:secret@host:6379/0/1":  "invalid URL path",
		"redis://user:secret@host:6379/zero": "invalid database number",
		"redis://user:se/cret@host:6379":     "expected redis://",
		"redis://user:1/secret@host:6379":    "expected redis://",
		"redis://:secret":                    "expected redis://",
		"redis://user:se%zzcret@host":        "expected redis://",
		"user:secret@host:6379":              "expected redis://",
		"http://user:secret@host:6379":       "invalid URL scheme",
		"127.0.0.1:6379":                     "expected redis://",
		"redis://h?dial_timeout=soon":        "invalid dial timeout",
		"redis://u:secret@::1:7105":          "an IPv6 address needs brackets: redis://[::1]:7105",
		"rediss://2001:db8::1/3":             "an IPv6 address needs brackets: rediss://[2001:db8::1]:6379",
		"redis://h:1:2":                      "expected redis://",
		"redis://u:secret@h:99999":           "invalid port 99999, it must be 1 to 65535",
		"redis://u:secret@h:1/0?foo=bar":     "unknown query key foo, there are only addr, client_cache",
		"redis://h:1?db=1&db=2":              "the query key db is there 2 times",
		"redis://h:1?addr=g":                 "addr=g is not host:port",
		"redis://h:1?addr=::1:2":             "addr=::1:2 is not host:port",
		"redis://h:1?addr=g:2;db=1":          "the query cannot be parsed",
		"redis://u:secret@h:1/0#x":           "%23",
		"redis://h?dial_timeout=-1s":         "dial_timeout=-1s, expected a duration above 0",
		"redis://h?dial_timeout=0s":          "dial_timeout=0s, expected a duration above 0",
		"redis://h?write_timeout=-1s":        "write_timeout=-1s, expected a duration above 0",
		"redis://h/-1":                       "invalid database number -1, expected 0 or more",
		"redis://h?db=-3":                    "invalid database number -3, expected 0 or more",
		"redis://h/1?db=2":                   "the database is in the path and in db=2, expected one of them",
		"redis://h/1?db=1":                   "the database is in the path and in db=1, expected one of them",
		"redis://h?protocol=9":               "protocol=9, expected 2 or 3",
		"redis://h?protocol=":                "protocol=, expected 2 or 3",
		"redis://h?client_cache=no":          "client_cache=no, expected 0 or 1",
		"redis://h?max_retries=x":            "max_retries=x, expected 0",
		"redis://h?max_retries=3":            "max_retries=3, expected 0",
		"redis://h?skip_verify=maybe":        "skip_verify=maybe, expected true or false",
		"rediss://h?skip_verify=maybe":       "invalid skip verify",
		"redis://h?master_set=":              "master_set= has no name",
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			for role, openRole := range roles {
				_, err := openRole(Config{URL: raw})
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "cret") {
					t.Errorf("%s: %v, want %q", role, err, want)
				}
				var parse *url.Error
				if got := errors.As(err, &parse); got != (want == "expected redis://") {
					t.Errorf("%s: is a *url.Error: %v", role, got)
				}
			}
		})
	}
}
