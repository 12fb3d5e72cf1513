package cell

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// restricted is a server with a user for the agent of node n1, which has scripts by their hashes alone.
type restricted struct {
	t        *testing.T
	redis    *redistest.Server
	admin    rueidis.Client
	layout   Layout
	messages *observer.ObservedLogs
	agent    *Cell
}

func newRestricted(t *testing.T) *restricted {
	t.Helper()
	f := &restricted{t: t, layout: Layout{Prefix: "fleet"}}
	rights, err := acl.Of(script.RoleAgent, "n1", []script.Layout{script.Layout(f.layout)}, Access)
	if err != nil {
		t.Fatal(err)
	}
	user := append([]string{"--user", "agent-n1", "on", ">secret"}, rights.Rules()...)
	f.redis = redistest.New(t, redistest.AppendOnly("always"), redistest.Args(user...))
	f.admin = f.redis.Client(t)
	f.agent = f.cell(script.Await, f.redis.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = "agent-n1", "secret", rueidis.DisableClientSetInfo
	}))
	return f
}

func (f *restricted) cell(missing script.Missing, client rueidis.Client) *Cell {
	f.t.Helper()
	var core zapcore.Core
	core, f.messages = observer.New(zapcore.InfoLevel)
	c, err := New(Config{Layout: f.layout, CallTimeout: patience, HeartbeatLimit: time.Hour, Scripts: missing}, client, zap.New(core), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := c.Start(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

func (f *restricted) flush() {
	f.t.Helper()
	if err := f.admin.Do(f.t.Context(), f.admin.B().ScriptFlush().Build()).Error(); err != nil {
		f.t.Fatal(err)
	}
}

// insist repeats a call that a restart can break, as agents do.
func insist(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	waittest.Succeeds(t, what, func() error { return call(t.Context()) })
}

// TestScriptsAreBack: an agent that may call scripts by hash alone waits until a replica has loaded them: at the
// beginning, after a flush in the middle of jobs, and after a restart of Redis. No job is lost, none is done twice.
func TestScriptsAreBack(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	messages := f.messages
	epoch := NewEpoch()
	ctx := waittest.Context(t)
	var registering sync.WaitGroup
	var registered error
	registering.Go(func() { _, registered = f.agent.Register(ctx, testNode("n1", 4), epoch) })
	insist(t, "the agent says that it waits", func(context.Context) error {
		if messages.FilterMessage("scripts.missing").Len() != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	replica := f.cell(script.Keep, f.redis.RoleClient(t))
	if _, err := replica.Check(ctx); err != nil {
		t.Fatal(err)
	}
	registering.Wait()
	if registered != nil {
		t.Fatal(registered)
	}
	if err := replica.OpenReplies(ctx, "r1"); err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func(){"flush": f.flush, "restart": f.redis.Restart} {
		var jobs []string
		for range 4 {
			s := submission("r1", "n1")
			s.JobID = replica.NewJobID()
			insist(t, "submit", func(ctx context.Context) error {
				p, err := replica.Submit(ctx, s)
				if err == nil && !p.Assigned {
					err = errors.New("not assigned")
				}
				return err
			})
			jobs = append(jobs, s.JobID)
		}
		harm()
		insist(t, "heartbeat", func(ctx context.Context) error {
			_, err := f.agent.Heartbeat(ctx, Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{jobs[0], 1}, {jobs[1], 1}, {jobs[2], 1}, {jobs[3], 1}}})
			return err
		})
		for _, id := range jobs {
			insist(t, "complete", func(ctx context.Context) error {
				out, err := f.agent.Complete(ctx, succeed("n1", epoch, id))
				if err == nil && out == CompletedStale {
					t.Errorf("%s: job %s was not the node's any more", name, id)
				}
				return err
			})
		}
	}
	// A replica loads them one by one, so the agent can find one back and miss another.
	const missing, scripts = 3, 2
	if n := messages.FilterMessage("scripts.missing").Len(); n > missing*scripts {
		t.Errorf("the agent logged %d times that scripts are missing, of %d times that all %d were", n, missing, scripts)
	}
	if n, back := messages.FilterMessage("scripts.missing").Len(), messages.FilterMessage("scripts.back").Len(); n != back {
		t.Errorf("missing %d times, back %d times", n, back)
	}
}

// TestScriptsRefused: a replica whose user may not load scripts says so, and how to mend it.
func TestScriptsRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--user", "poor", "on", ">x", "+@all", "-script", "~*", "&*"))
	c, err := New(Config{Scripts: script.Keep}, redis.Client(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "poor", "x" }), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := c.Check(t.Context())
	if err != nil || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "schedctl acl --role replica") }) {
		t.Errorf(`%q, %v; want no error, slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "schedctl acl --role replica") })`, warnings, err)
	}
}
