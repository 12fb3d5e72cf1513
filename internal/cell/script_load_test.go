package cell

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/redistest"
)

// soon bounds how long agents are without scripts; it is a fraction of a second where nothing else runs.
const soon = 5 * time.Second

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
	access, err := AccessOf(RoleAgent, "n1", f.layout)
	if err != nil {
		t.Fatal(err)
	}
	user := append([]string{"--user", "agent-n1", "on", ">secret"}, access.Rules()...)
	f.redis = redistest.New(t, redistest.AppendOnly("always"), redistest.Args(user...))
	f.admin = f.redis.Client(t)
	f.agent = f.cell(ScriptsAwaited, f.redis.Client(t, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.ClientSetInfo = "agent-n1", "secret", rueidis.DisableClientSetInfo
	}))
	return f
}

func (f *restricted) cell(scripts ScriptSource, client rueidis.Client) *Cell {
	f.t.Helper()
	var core zapcore.Core
	core, f.messages = observer.New(zapcore.InfoLevel)
	c, err := New(Config{Layout: f.layout, CallTimeout: patience, HeartbeatLimit: time.Hour, Scripts: scripts}, client, zap.New(core), nil)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestScriptsAreBack: an agent that may call scripts by hash alone waits until a replica has loaded them: at the
// beginning, after a flush in the middle of jobs, and after a restart of Redis. No job is lost, none is done twice.
func TestScriptsAreBack(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	messages := f.messages
	epoch := NewEpoch()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var registering sync.WaitGroup
	var registered error
	registering.Go(func() { _, registered = f.agent.Register(ctx, testNode("n1", 4), epoch) })
	insist(t, "the agent says that it waits", func(context.Context) error {
		if messages.FilterMessage("scripts.missing").Len() != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	replica := f.cell(ScriptsKept, f.redis.RoleClient(t))
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
		begin := time.Now()
		insist(t, "heartbeat", func(ctx context.Context) error {
			_, err := f.agent.Heartbeat(ctx, Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{jobs[0], 1}, {jobs[1], 1}, {jobs[2], 1}, {jobs[3], 1}}})
			return err
		})
		t.Logf("%s: the agent was without scripts for %s", name, time.Since(begin))
		if took := time.Since(begin); took > soon {
			t.Errorf("%s: the agent waited for %s", name, took)
		}
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
	if n := messages.FilterMessage("scripts.missing").Len(); n > 3 {
		t.Errorf("the agent said %d times that the scripts are missing, of three times that they were", n)
	}
	if n, back := messages.FilterMessage("scripts.missing").Len(), messages.FilterMessage("scripts.back").Len(); n != back {
		t.Errorf("missing %d times, back %d times", n, back)
	}
}

// TestScriptsNobodyLoads: without a replica the agent says in time what it lacks, and asks the server only once
// whether it may load them itself.
func TestScriptsNobodyLoads(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 4*scriptsPatience)
		_, err := f.agent.Register(ctx, testNode("n1", 1), NewEpoch())
		cancel()
		if !errors.Is(err, ErrScriptsMissing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want ErrScriptsMissing", err)
		}
	}
	if n := f.denied(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestScriptsSentByAgent: an agent whose user may sends them itself where there is no replica.
func TestScriptsSentByAgent(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	free := f.cell(ScriptsAwaited, f.admin)
	epoch := NewEpoch()
	if _, err := free.Register(t.Context(), testNode("n1", 1), epoch); err != nil {
		t.Fatal(err)
	}
	if !free.loading.sends.Load() {
		t.Error("does not know that it has to")
	}
	begin := time.Now()
	if _, err := free.Heartbeat(t.Context(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > scriptsPatience/2 {
		t.Errorf("waited %s for a replica again", took)
	}
}

// TestScriptsOfAgentsAreKept: a replica never calls heartbeat.lua; that it is gone shows in no answer. So it is where
// a master comes back that had the scripts of an older release.
func TestScriptsOfAgentsAreKept(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	replica := f.cell(ScriptsKept, f.redis.RoleClient(t))
	f.flush()
	for _, s := range replica.scripts.all {
		if s.name == "heartbeat" {
			continue
		}
		if err := f.admin.Do(t.Context(), f.admin.B().ScriptLoad().Script(s.text).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	insist(t, "heartbeat.lua is there", func(ctx context.Context) error {
		there, err := f.admin.Do(ctx, f.admin.B().ScriptExists().Sha1(replica.scripts.heartbeat.sha).Build()).AsIntSlice()
		if err == nil && there[0] != 1 {
			err = errors.New("it is not")
		}
		return err
	})
}

// TestScriptsRefused: a replica whose user may not load scripts says so, and how to mend it.
func TestScriptsRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--user", "poor", "on", ">x", "+@all", "-script", "~*", "&*"))
	c, err := New(Config{Scripts: ScriptsKept}, redis.Client(t, func(o *rueidis.ClientOption) { o.Username, o.Password = "poor", "x" }), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := c.Check(t.Context())
	if err != nil || !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "schedctl acl --role replica") }) {
		t.Errorf("%q, %v", warnings, err)
	}
}

// TestScriptsOnCluster: what a cell loads is at the master that serves the cell.
func TestScriptsOnCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Cluster(t), third)
	r.scripts.all = []*script{newScript("own", "return '"+r.l.Prefix+"'")}
	if err := r.LoadScripts(r.ctx()); err != nil {
		t.Fatal(err)
	}
	call := r.raw.B().Evalsha().Sha1(r.scripts.all[0].sha).Numkeys(1).Key(r.l.Version()).Build()
	if got, err := r.raw.Do(r.ctx(), call).ToString(); err != nil || got != r.l.Prefix {
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

// TestScriptsUnanswered: that a connection broke says nothing of what the user may do.
func TestScriptsUnanswered(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	agent := f.cell(ScriptsAwaited, &broken{Client: f.agent.client})
	if _, err := agent.Register(t.Context(), testNode("n1", 1), NewEpoch()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 4*scriptsPatience)
		_, err := agent.Register(ctx, testNode("n1", 1), NewEpoch())
		cancel()
		if !errors.Is(err, ErrScriptsMissing) {
			t.Fatalf("got %v, want ErrScriptsMissing", err)
		}
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

// TestScriptsNeverThere: who was told to the last that the script is missing knows that nothing was done.
func TestScriptsNeverThere(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Scripts: ScriptsAwaited}, empty{redistest.Shared(t).Client(t)}, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptsPatience/4)
	defer cancel()
	_, err = c.Register(ctx, testNode("n1", 1), NewEpoch())
	if !errors.Is(err, ErrScriptsMissing) || !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrScriptsMissing and ErrNotSent", err)
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

// TestScriptsCutShort: who waited for the scripts is told so, also where the time ended while Redis was asked again.
func TestScriptsCutShort(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	for _, early := range []bool{false, true} {
		agent := f.cell(ScriptsAwaited, &silent{Client: f.agent.client, early: early})
		ctx, cancel := context.WithTimeout(t.Context(), 2*scriptsPatience)
		_, err := agent.Register(ctx, testNode("n1", 1), NewEpoch())
		cancel()
		if !errors.Is(err, ErrScriptsMissing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("early %v: got %v, want ErrScriptsMissing", early, err)
		}
		if errors.Is(err, ErrNotSent) {
			t.Errorf("early %v: %v says that nothing was sent", early, err)
		}
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

// TestScriptsLoadedOnce: of the calls that find their scripts missing at once, one loads all: a master that has just
// taken over has better things to do than to take each script from each of them.
func TestScriptsLoadedOnce(t *testing.T) {
	t.Parallel()
	f := newRestricted(t)
	replica := f.cell(ScriptsKept, f.redis.RoleClient(t))
	if err := replica.Stop(t.Context()); err != nil { // what looks each second is not meant
		t.Fatal(err)
	}
	var mu sync.Mutex
	loads := 0
	replica.client = &counted{Client: replica.client, heard: func(n int) { mu.Lock(); loads += n; mu.Unlock() }}
	f.flush()
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() {
			if _, err := replica.MemoryUse(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if most := 4 * len(replica.scripts.all); loads == 0 || loads > most {
		t.Errorf("%d loads of %d scripts", loads, len(replica.scripts.all))
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
