package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// counted is a client that counts the reads of assignments.
type counted struct {
	rueidis.Client

	reads atomic.Int64
}

func (c *counted) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if words := cmd.Commands(); words[0] == "GET" && strings.Contains(words[1], "lists:source:") {
		c.reads.Add(1)
	}
	return c.Client.Do(ctx, cmd)
}

// TestElsewhereCostsNothing: a replica reads the lists that are due for sources of other replicas
// once, until their assignments change or a minute is over. It begins a run at once when a list is
// given a source that it has.
func TestElsewhereCostsNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	log, client := zaptest.NewLogger(t), &counted{Client: g.redis.RoleClient(t)}
	r := NewRunner(RunnerConfig{
		Sources: map[string]Config{"here": {}}, Store: NewStore(g.control, client, log), Control: g.control, Log: log,
	})
	r.slots = make(chan struct{}) // it has no room to begin a run
	lists := []string{list, "beta", "staff"}
	for _, name := range lists[1:] {
		_, err := g.control.Create(g.ctx, name, namelist.Spec{})
		g.check(err)
	}
	ask := func(name string) {
		t.Helper()
		_, err := g.store.Ask(g.ctx, name, "ann")
		g.check(err)
	}
	for _, name := range lists {
		_, err := g.store.Set(g.ctx, name, Assignment{Source: "there"})
		g.check(err)
		ask(name)
	}
	looks := func(what string, want int64) {
		t.Helper()
		before := client.reads.Load()
		for range 10 {
			r.look()
		}
		if n := client.reads.Load() - before; n != want {
			t.Errorf("ten looks %s read assignments %d times; want %d", what, n, want)
		}
	}
	looks("at three lists", 3)
	looks("later", 0)
	a, err := g.store.Get(g.ctx, list)
	g.check(err)
	waittest.Until(t, "the next millisecond", func() bool {
		nowMS, err := g.store.now(g.ctx)
		return err == nil && nowMS > a.NextMS
	})
	ask(list)
	looks("after a change of one", 1)
	for name, p := range r.elsewhere {
		p.until = time.Now() // as if a minute had passed
		r.elsewhere[name] = p
	}
	looks("after a minute", 3)
	bad := g.redis.Client(t)
	g.check(bad.Do(g.ctx, bad.B().Set().Key(g.store.key("beta")).Value("{").Build()).Error())
	clear(r.elsewhere)
	looks("at one that is unreadable and two others", 3)
	for _, name := range lists[1:] {
		g.check(g.store.Unset(g.ctx, name))
	}
	looks("without two of them", 0)
	if len(r.elsewhere) != 1 {
		t.Errorf("it remembers %d lists; want the one that is due", len(r.elsewhere))
	}
	_, err = g.store.Set(g.ctx, list, Assignment{Source: "here"})
	g.check(err)
	ask(list)
	looks("at a list with a source that it has, and no room for the run", 10)
}

// TestLateIsFound: while the run that is due of a list is begun by no replica for long, that is a
// finding. It goes when a replica that has the source begins the run.
func TestLateIsFound(t *testing.T) {
	t.Parallel()
	const lateAfter = 5 * time.Minute
	g := newRig(t)
	late := func() (found finding.Finding) {
		t.Helper()
		all, err := Findings(g.store, lateAfter, nil).Look(g.ctx)
		g.check(err)
		for _, f := range all {
			if f.ID == "lists.sources_late" {
				found = f
			}
		}
		return found
	}
	// due changes since when the run is due, in ms ago.
	due := func(ago int64, running bool) (atMS int64) {
		t.Helper()
		_, err := g.store.change(g.ctx, list, func(a *Assignment, nowMS int64) error {
			a.NextMS, a.Running, atMS = nowMS-ago, nil, nowMS-ago
			if running {
				a.Running, a.NextMS = &Run{ID: "1", Replica: "dead", LeaseMS: atMS}, nowMS+time.Hour.Milliseconds()
			}
			return nil
		})
		g.check(err)
		return atMS
	}
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "s"})
	g.check(err)
	if f := late(); f.ID != "" {
		t.Errorf("%+v before a run was asked for; want no finding", f)
	}
	limit := lateAfter.Milliseconds()
	for _, running := range []bool{false, true} {
		due(limit/2, running)
		if f := late(); f.ID != "" {
			t.Errorf("%+v half of the time after a run was due; want no finding", f)
		}
		at := due(limit, running)
		f := late()
		if f.SinceMS != at || len(f.Names) != 1 || f.Names[0] != list ||
			!strings.HasSuffix(f.Text, "1 list; longest vip from s") ||
			!strings.Contains(f.Next, "lists.sources") {
			t.Errorf("%+v; want a finding of vip since %d with a next step", f, at)
		}
	}
	g.replica("r1", map[string]Config{"s": {Kind: KindFile, Path: "/nowhere"}})
	waittest.Until(t, "the finding to go", func() bool { return late().ID == "" })
}

// TestFailedRunIsFound: a list whose last run failed, or made a version that waits, is a finding,
// until a run makes one that serves, or until that version serves.
func TestFailedRunIsFound(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	file := filepath.Join(t.TempDir(), "ids.csv")
	g.replica("r1", map[string]Config{"s": {Kind: KindFile, Path: file}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "s"})
	g.check(err)
	serving := int64(0)
	expect := func(when string, want Result) {
		t.Helper()
		found, err := Findings(g.store, time.Hour, func(string) int64 { return serving }).Look(g.ctx)
		g.check(err)
		if want == "" {
			if len(found) != 0 {
				t.Errorf("%s found %+v; want nothing", when, found)
			}
			return
		}
		prefix := "1 list has no new version from the source; vip " + string(want) + ": "
		if len(found) != 1 || found[0].ID != "lists.sources" || !strings.HasPrefix(found[0].Text, prefix) || found[0].SinceMS == 0 {
			t.Errorf("%s found %+v; want lists.sources: %s…", when, found, prefix)
		}
	}
	write := func(ids string) {
		t.Helper()
		g.check(os.WriteFile(file, []byte(ids), 0o600))
	}
	expect("before a run", "")
	g.want(g.run(), Failed, "")
	expect("without a file", Failed)
	write("a\nb\n")
	g.want(g.run(), Served, "")
	expect("with a file", "")
	write("")
	held := g.run()
	g.want(held, Held, "")
	serving = held.Version - 1
	expect("with an empty file", Held)
	serving = held.Version
	expect("once that version serves", "")
}
