package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// restricted is a server with a user who has scripts by their hashes alone.
type restricted struct {
	t      *testing.T
	redis  *redistest.Server
	admin  rueidis.Client
	layout Layout
	key    string
	poor   rueidis.Client
	agent  *Runner
	// messages are those of the runner that was made last.
	messages *observer.ObservedLogs
}

func newRestricted(t *testing.T) *restricted {
	t.Helper()
	f := &restricted{t: t, layout: Layout{Prefix: "fleet"}}
	f.key = f.layout.Key("list", "a")
	user := []string{"--user", "poor", "on", ">secret", "~" + f.key, "+ping", "+select", "+role", "+rpush", "+llen", "+time"}
	for _, s := range lists {
		user = append(user, "+evalsha|"+s.Hash(false))
	}
	f.redis = redistest.New(t, redistest.AppendOnly("always"), redistest.Args(user...))
	f.admin = f.redis.Client(t)
	f.poor = f.redis.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = "poor", "secret", rueidis.DisableClientSetInfo
	})
	f.agent = f.runner(Await, f.poor)
	return f
}

func (f *restricted) runner(missing Missing, client rueidis.Client) *Runner {
	f.t.Helper()
	var core zapcore.Core
	core, f.messages = observer.New(zapcore.InfoLevel)
	r := NewRunner(Config{Layout: f.layout, CallTimeout: patience, Missing: missing}, client, zap.New(core), nil)
	r.Add(lists)
	return r
}

// keeper is a runner that looks for what is missing until the test ends.
func (f *restricted) keeper() *Runner {
	f.t.Helper()
	r := f.runner(Keep, f.admin)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); r.Keep(stop) }()
	f.t.Cleanup(func() { close(stop); receive(f.t, stopped) })
	return r
}

func (f *restricted) flush() {
	f.t.Helper()
	if err := f.admin.Do(f.t.Context(), f.admin.B().ScriptFlush().Build()).Error(); err != nil {
		f.t.Fatal(err)
	}
}

// denied is how often EVAL was denied, and nothing else.
func (f *restricted) denied() (times int64) {
	f.t.Helper()
	log, err := f.admin.Do(f.t.Context(), f.admin.B().Arbitrary("ACL", "LOG").Build()).ToArray()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range log {
		entry, err := m.AsMap()
		object, count := entry["object"], entry["count"] // alike ones are one entry
		said, _ := object.ToString()
		n, countErr := count.AsInt64()
		if err := errors.Join(err, countErr); err != nil || said != "eval" {
			f.t.Fatalf("denied %q, %v", said, err)
		}
		times += n
	}
	return times
}

// TestSend: the zero policy sends a missing script with its call; the next call goes by the hash.
func TestSend(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		for want := range int64(3) {
			if n, err := appends(r.ctx(), r.Runner, r.key, "x"); err != nil || n != want+1 {
				t.Errorf("%d, %v; want no error, n == want+1", n, err)
			}
		}
	})
}

// TestAwaitUntilKept: a process that may call scripts by hash alone waits until another has loaded them, says so once, and
// makes its call once.
func TestAwaitUntilKept(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	messages := f.messages
	ctx := t.Context()
	over := make(chan error, 1)
	go func() { _, err := appends(ctx, f.agent, f.key, "x"); over <- err }()
	waittest.Until(t, "the agent to say that it waits", func() bool { return messages.FilterMessage("scripts.missing").Len() == 1 })
	f.keeper()
	if err := receive(t, over); err != nil {
		t.Fatal(err)
	}
	if n := messages.FilterMessage("scripts.back").Len(); n != 1 {
		t.Errorf("back %d times", n)
	}
	if n, err := appends(ctx, f.agent, f.key, "y"); err != nil || n != 2 {
		t.Errorf("the list has %d values, expected 2: %v", n, err)
	}
}

// awaitsInVain makes calls until one tells its caller that the script is missing, and the server was asked whether the
// user may send it: on a busy machine a call can end before.
func (f *restricted) awaitsInVain(agent *Runner) {
	f.t.Helper()
	waittest.Succeeds(f.t, "ErrMissing", func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), 4*awaitPatience)
		defer cancel()
		if _, err := appends(ctx, agent, f.key, "x"); !errors.Is(err, ErrMissing) || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the call ended with: %w", err)
		}
		if f.denied() == 0 {
			return errors.New("the server was not asked")
		}
		return nil
	})
}

// TestAwaitInVain: where no process loads the scripts the caller learns in time what it lacks, and the server is asked
// only once whether the user may send them.
func TestAwaitInVain(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	for range 2 {
		f.awaitsInVain(f.agent)
	}
	if n := f.denied(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestAwaitAllowed: a process that waits, and may send scripts, does so itself where no other has.
func TestAwaitAllowed(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	client := &recorded{Client: f.admin}
	free := f.runner(Await, client)
	if _, err := appends(t.Context(), free, f.key, "x"); err != nil {
		t.Fatal(err)
	}
	if !free.loading.sends.Load() {
		t.Error("does not know that it has to")
	}
	f.flush()
	client.names = nil
	if _, err := appends(t.Context(), free, f.key, "x"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(client.names, " "); got != "EVALSHA EVAL" {
		t.Errorf("sent %s, expected EVALSHA EVAL without a wait for another process", got)
	}
}

// recorded remembers the commands of one caller.
type recorded struct {
	rueidis.Client
	names []string
}

func (r *recorded) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	r.names = append(r.names, cmd.Commands()[0])
	return r.Client.Do(ctx, cmd)
}

// TestKeepsAll: a process loads also the scripts that it never calls: that one of them is gone shows in no answer. So it
// is where a master comes back that had the scripts of an older release.
func TestKeepsAll(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	f.keeper()
	f.flush()
	if err := f.admin.Do(t.Context(), f.admin.B().ScriptLoad().Script(lists["append"].Text(false)).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	waittest.Succeeds(t, "length.lua to be there", func() error {
		there, err := f.admin.Do(t.Context(), f.admin.B().ScriptExists().Sha1(lists["length"].Hash(false)).Build()).AsIntSlice()
		if err == nil && there[0] != 1 {
			err = errors.New("it is not")
		}
		return err
	})
}

// TestKeepRefused: a user who may not load scripts is told apart, and the log says so once.
func TestKeepRefused(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	r := f.runner(Keep, f.poor)
	for range 2 {
		r.keep(t.Context())
	}
	if n := f.messages.FilterMessage("scripts.refused").Len(); n != 1 {
		t.Errorf("said so %d times", n)
	}
	if err := r.Load(t.Context()); !IsRefused(err) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestLoadOnCluster: what a runner loads is at the master that serves its cell.
func TestLoadOnCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Cluster(t), func(c *Config) { c.Layout = Layouts(c.Layout.Prefix, 4, true)[2] })
	own := New("own", "return '"+r.Layout().Prefix+"'")
	r.Add(Set{"own": own})
	if err := r.Load(r.ctx()); err != nil {
		t.Fatal(err)
	}
	call := r.raw.B().Evalsha().Sha1(own.Hash(true)).Numkeys(1).Key(r.Layout().Key("list", "a")).Build()
	if got, err := r.raw.Do(r.ctx(), call).ToString(); err != nil || got != r.Layout().Prefix {
		t.Error(got, err)
	}
}

// broken is a connection that breaks at the first call that sends a script.
type broken struct {
	rueidis.Client
	once sync.Once
}

func (b *broken) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	breaks := false
	if cmd.Commands()[0] == "EVAL" {
		b.once.Do(func() { breaks = true })
	}
	if breaks {
		return rueidis.NewErrorResult(io.EOF)
	}
	return b.Client.Do(ctx, cmd)
}

// TestAwaitUnanswered: that a connection broke says nothing of what the user may do.
func TestAwaitUnanswered(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	agent := f.runner(Await, &broken{Client: f.poor})
	if _, err := appends(t.Context(), agent, f.key, "x"); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for range 2 {
		f.awaitsInVain(agent)
	}
	if n := f.denied(); n != 1 {
		t.Errorf("the agent tried %d times to send what it may not", n)
	}
}

// empty is a Redis that never has a script.
type empty struct{ rueidis.Client }

func (e empty) Do(ctx context.Context, _ rueidis.Completed) rueidis.RedisResult {
	none := e.B().Evalsha().Sha1(strings.Repeat("0", 40)).Numkeys(0).Build()
	return e.Client.Do(context.WithoutCancel(ctx), none)
}

// TestAwaitNeverThere: a caller to which Redis said to the last that the script is missing knows that nothing was done.
func TestAwaitNeverThere(t *testing.T) {
	t.Parallel()
	r := NewRunner(Config{Missing: Await}, empty{redistest.Shared(t).Client(t)}, zap.NewNop(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), awaitPatience/4)
	defer cancel()
	_, err := appends(ctx, r, "list", "x")
	if !errors.Is(err, ErrMissing) || !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrMissing and ErrNotSent", err)
	}
}

// silent is a connection that no more is heard of once the script was asked for.
type silent struct {
	rueidis.Client
	asked atomic.Bool
	early bool // the connection sees the deadline before the context does
}

func (s *silent) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Commands()[0] == "EVALSHA" && s.asked.Swap(true) {
		if !s.early {
			<-ctx.Done()
		}
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	}
	return s.Client.Do(ctx, cmd)
}

// TestAwaitCutShort: a caller learns that it waited for scripts also where the time ended while Redis was asked again.
func TestAwaitCutShort(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	for _, early := range []bool{false, true} {
		waittest.Succeeds(t, "ErrMissing", func() error {
			agent := f.runner(Await, &silent{Client: f.poor, early: early})
			ctx, cancel := context.WithTimeout(t.Context(), 2*awaitPatience)
			defer cancel()
			_, err := appends(ctx, agent, f.key, "x")
			if !errors.Is(err, ErrMissing) || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("early %v: %w", early, err)
			}
			if errors.Is(err, ErrNotSent) {
				t.Errorf("early %v: %v says that nothing was sent", early, err)
			}
			return nil
		})
	}
}

// counted counts the commands that are sent together.
type counted struct {
	rueidis.Client
	heard func(n int)
}

func (c *counted) DoMulti(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	c.heard(len(cmds))
	return c.Client.DoMulti(ctx, cmds...)
}

// TestLoadedOnce: of the calls that find their scripts missing at once, one loads all: a master that has just
// taken over has better things to do than to take each script from each of them.
func TestLoadedOnce(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	var loads atomic.Int64
	r := f.runner(Keep, &counted{Client: f.admin, heard: func(n int) { loads.Add(int64(n)) }})
	f.flush()
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() {
			if _, err := appends(t.Context(), r, f.key, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if most := 4 * len(lists); loads.Load() == 0 || loads.Load() > int64(most) {
		t.Errorf("%d loads of %d scripts", loads.Load(), len(lists))
	}
}

// TestSharded: on a cluster a script publishes to the channel of its cell by SPUBLISH, and to others as everywhere.
func TestSharded(t *testing.T) {
	t.Parallel()
	const text = "redis.call('PUBLISH', channel, 'x')\nredis.call('PUBLISH', other_channel, 'x')\n"
	says := New("says", text)
	if got := says.Text(true); got != strings.Replace(text, "PUBLISH", "SPUBLISH", 1) || says.Text(false) != text {
		t.Errorf(`%q; want got == strings.Replace(text, "PUBLISH", "SPUBLISH", 1), says.Text(false) == %v`, got, text)
	}
}
