package namelist

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// putChain writes a version of a chain.
func (r *rig) putChain(name string, seen int64, document string) int64 {
	r.t.Helper()
	d, _, err := chain.Parse([]byte(document), nil)
	r.must(err)
	version, err := r.PutChain(bounded(r.t), lists.ChainPut{
		Chain: name, Seen: seen, Document: string(chain.Encode(d)), Lists: d.Lists(), By: nobody,
	})
	r.must(err)
	return version
}

// awaitChain waits until a chain stands as wanted.
func (r *rig) awaitChain(c *Chain, what string, is func(ChainStatus) bool) {
	r.t.Helper()
	done := make(chan struct{})
	ended := false
	stop := c.OnChange(func(s ChainStatus) {
		if is(s) && !ended {
			ended = true
			close(done)
		}
	})
	defer stop()
	waittest.Receive(r.t, what, done, func() any { return fmt.Sprintf("%+v", c.Status()) })
}

// told is a decision in short.
func told(d Decision) string {
	text := fmt.Sprintf("%s %q %s by %s of %d: %s", d.Outcome, d.Variant, d.Value, d.Rule, d.Version, d.Reason)
	for _, v := range d.Versions() {
		text += fmt.Sprintf(" %s@%d", v.List, v.Version)
	}
	if d.Doubt.Rule != "" {
		text += "; " + d.Doubt.String()
	}
	return text
}

func decides(t *testing.T, about string, d Decision, want string) {
	t.Helper()
	if got := told(d); got != want {
		t.Errorf("%s: %s; want %s", about, got, want)
	}
}

const (
	chainOne = `{"name": "checkout", "attributes": {"country": "string"}, "variants": {"new": {"model": "m2"}},
		"rules": [
			{"name": "testers", "kind": "in", "list": "vip", "unknown": "stop", "outcome": "variant: new"},
			{"name": "abroad", "kind": "expression", "expression": "country != \"DE\"", "unknown": "skip", "outcome": "deny"}],
		"default": "allow"}`
	chainTwo = `{"name": "checkout", "rules": [
			{"name": "banned", "kind": "in", "list": "banned", "unknown": "stop", "outcome": "deny"}], "default": "allow"}`
)

// A chain from nothing over two versions, a shadow and lists that change, to its end.
func TestChainLife(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		client := r.open()
		c := client.Chain("checkout")
		r.awaitChain(c, "unknown chain", func(s ChainStatus) bool { return s.Reason == ChainReasonChainUnknown })
		decides(t, "no chain", c.Evaluate(ctx, Subject{Key: "a1"}), `unknown ""  by  of 0: chain unknown`)
		decides(t, "a bad name", client.Chain("a_b").Evaluate(ctx, Subject{Key: "a1"}), `unknown ""  by  of 0: chain unknown`)

		r.create("vip", lists.Spec{})
		r.create("banned", lists.Spec{})
		r.publish("banned", entriesOf("b1"))
		r.putChain("checkout", 0, chainOne)
		r.awaitChain(c, "the first version", func(s ChainStatus) bool { return s.Version == 1 })
		german := Subject{Key: "a1", Attributes: map[string]any{"country": "DE"}}
		decides(
			t, "a draft list", c.Evaluate(ctx, german),
			`unknown ""  by testers of 1: stopped vip@0; rule testers: list vip: draft`,
		)

		v1 := r.publish("vip", entriesOf("a1", "a2"))
		r.await(client.List("vip"), "the list", func(s Status) bool { return s.Version == v1.Number })
		r.must(c.WaitReady(ctx))
		decides(
			t, "in memory alone", c.Peek(german),
			`unknown ""  by testers of 1: stopped vip@1; rule testers: list vip: not loaded`,
		)
		decides(t, "a tester", c.Evaluate(ctx, german), `variant "new" {"model":"m2"} by testers of 1: rule vip@1`)
		decides(t, "a tester in memory", c.Peek(german), `variant "new" {"model":"m2"} by testers of 1: rule vip@1`)
		german.Key = "stranger"
		decides(t, "a German", c.Evaluate(ctx, german), `allow ""  by  of 1: default vip@1`)
		decides(
			t, "a Dane", c.Evaluate(ctx, Subject{Key: "stranger", Attributes: map[string]any{"country": "DK"}}),
			`deny ""  by abroad of 1: rule vip@1`,
		)
		decides(
			t, "who knows", c.Evaluate(ctx, Subject{Key: "stranger"}),
			`allow ""  by  of 1: default vip@1; rule abroad: country: the attribute is missing`,
		)

		d, _, err := chain.Parse([]byte(chainTwo), nil)
		r.must(err)
		_, err = r.ShadowChain(
			ctx, lists.ChainPut{Chain: "checkout", Seen: 1, Document: string(chain.Encode(d)), Lists: d.Lists(), By: nobody},
		)
		r.must(err)
		r.awaitChain(c, "the shadow", func(s ChainStatus) bool { return s.Shadow })
		r.ready(client.List("banned"))
		decides(t, "beside a shadow", c.Evaluate(ctx, german), `allow ""  by  of 1: default vip@1`)
		_ = c.Evaluate(ctx, Subject{Key: "a1"})
		_ = client.List("banned").Check(ctx, "a1") // of a filter one in 256 passes
		_ = client.List("banned").Check(ctx, "stranger")
		shadowed := func() (same, different uint64) {
			for _, counts := range c.counts.Totals() {
				same, different = same+counts[count.ShadowSame], different+counts[count.ShadowDifferent]
			}
			return same, different
		}
		sameBefore, differentBefore := shadowed()
		_ = c.Evaluate(ctx, Subject{Key: "a1"})
		_ = c.Evaluate(ctx, german)
		if same, different := shadowed(); same != sameBefore+1 || different != differentBefore+1 {
			t.Errorf("%d more decisions are the same, %d different; want 1 and 1", same-sameBefore, different-differentBefore)
		}

		r.putChain("checkout", 1, chainTwo)
		r.awaitChain(c, "the second version", func(s ChainStatus) bool { return s.Version == 2 && !s.Shadow })
		decides(t, "banned", c.Evaluate(ctx, Subject{Key: "b1"}), `deny ""  by banned of 2: rule banned@1`)
		counted := map[string]uint64{"testers": 6, "abroad": 1, "banned": 1, count.Default: 4}
		if diff := cmp.Diff(counted, c.Counted()); diff != "" {
			t.Errorf("decisions by rule: %s", diff)
		}
		r.must(r.DeleteChain(ctx, "checkout", 2))
		r.awaitChain(c, "the end", func(s ChainStatus) bool { return s.Reason == ChainReasonChainUnknown })
		r.putChain("checkout", 0, chainOne)
		r.awaitChain(c, "a new life", func(s ChainStatus) bool { return s.Version == 3 })
		r.must(c.WaitReady(ctx))
	})
}

// A version that this release cannot read decides nothing; the next one does.
func TestChainFormat(t *testing.T) {
	t.Parallel()
	v := newChainView("checkout", 0)
	open := func(name string) *List { t.Fatalf("list %s is opened; want none", name); return nil }
	answer := func(document string, revision int64) ChainStatus {
		_, number, due := v.fetch.Take(0)
		if !due {
			t.Fatal("no fetch is due; want one")
		}
		v.answered(number, &lists.ChainRecord{
			Mark: lists.Mark{Birth: "1", Revision: revision}, ChainVersion: lists.ChainVersion{Version: revision},
			Document: document,
		}, open, 0, 0)
		v.tick(0)
		return v.state(time.Time{}, 0).status
	}
	if s := answer(`{"name": "checkout", "rules": [], "default": "dance"}`, 1); s.Reason != ChainReasonFormat ||
		s.Version != 1 {
		t.Errorf("status %+v; want another format", s)
	}
	v.event(&lists.Event{Revision: 1, Birth: "1"}, 0)
	if !v.fetch.Idle() {
		t.Error("a known revision is fetched; want nothing")
	}
	v.looked(v.fetch.Number(), lists.Mark{Birth: "1", Revision: 1}, "h1", 0, 0)
	v.event(&lists.Event{Revision: 2, Birth: "1"}, 0)
	if s := answer(`{"name": "checkout", "rules": [], "default": "deny"}`, 2); s.Reason != ChainReasonNone ||
		s.Version != 2 {
		t.Errorf("status %+v; want version 2", s)
	}
	// After a failover the same mark can stand for another document.
	v.looked(v.fetch.Number(), lists.Mark{Birth: "1", Revision: 2}, "h2", 0, -spread)
	if v.fetch.Idle() {
		t.Error("nothing is fetched after another history; want the chain")
	}
}

// A version that asks a new list decides once the list is there, or after a while.
func TestChainAwaitsLists(t *testing.T) {
	t.Parallel()
	v := newChainView("checkout", 0)
	l := &List{name: "vip"}
	l.snapshot.Store(&snapshot{why: ReasonNotLoaded})
	_, number, _ := v.fetch.Take(0)
	v.answered(number, &lists.ChainRecord{
		Mark: lists.Mark{Birth: "1", Revision: 1}, ChainVersion: lists.ChainVersion{Version: 1},
		Document: `{"name": "vip", "rules": [{"name": "r", "kind": "in", "unknown": "stop", "outcome": "deny"}], "default": "allow"}`,
	}, func(string) *List { return l }, 0, 0)
	for _, at := range []struct {
		now  time.Duration
		want ChainReason
	}{{0, ChainReasonNotLoaded}, {listPatience, ChainReasonNotLoaded}, {listPatience + 1, ChainReasonNone}} {
		v.tick(at.now)
		if got := v.state(time.Time{}, at.now).status.Reason; got != at.want {
			t.Errorf("after %s the reason is %s; want %s", at.now, got, at.want)
		}
	}
}

// While Redis is away, a chain decides from memory, and says that it is stale.
func TestChainOutage(t *testing.T) {
	t.Parallel()
	v := newChainView("checkout", 0)
	_, number, _ := v.fetch.Take(0)
	v.answered(number, &lists.ChainRecord{
		Mark: lists.Mark{Birth: "1", Revision: 1}, Document: `{"name": "checkout", "rules": [], "default": "deny"}`,
	}, nil, 0, 0)
	v.tick(0)
	if s := v.state(time.Time{}, 0); s.status.Stale || s.serving.chain == nil {
		t.Errorf("status %+v; want one that is not stale", s.status)
	}
	if v.tick(staleAfter + 1); !v.dirty {
		t.Error("nothing is due; want a stale state")
	}
	s := v.state(time.Time{}, staleAfter+1)
	c := newClient(Config{}.withDefaults()).Chain("checkout")
	c.client.publishChain(c, s)
	if d := c.Evaluate(context.Background(), Subject{}); !d.Stale || d.Outcome != OutcomeDeny {
		t.Errorf("%+v; want a stale deny", d)
	}
	if diff := cmp.Diff([]ListVersion{}, c.Peek(Subject{}).Versions()); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// A process that starts while Redis is away takes the chain, with the lists that it asks, from the
// disk.
func TestChainFromDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	dir := t.TempDir()
	in := func(cfg *Config) { cfg.SnapshotDir, cfg.Deadline = dir, DefaultDeadline }
	r.create("vip", lists.Spec{Settings: lists.Settings{Whole: true}})
	r.publish("vip", entriesOf("a1"))
	r.putChain("checkout", 0, chainOne)
	first := r.open(in)
	r.must(first.Chain("checkout").WaitReady(bounded(t)))
	r.must(first.Close(bounded(t)))
	second := r.open(in, func(cfg *Config) { cfg.RedisURL = "redis://127.0.0.1:1" })
	c := second.Chain("checkout")
	r.must(c.WaitReady(bounded(t)))
	d := c.Evaluate(bounded(t), Subject{Key: "a1"})
	decides(t, "from the disk", d, `variant "new" {"model":"m2"} by testers of 1: rule vip@1`)
	if !d.Stale {
		t.Errorf("%+v; want a stale decision", d)
	}
}
