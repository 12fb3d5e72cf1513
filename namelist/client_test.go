package namelist

import (
	"context"
	"fmt"
	"testing"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// One list from nothing over draft, version, edits and switch to its end; all ids are asked at each
// step.
func TestLife(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		l := r.open().List("vip")
		r.await(l, "unknown list", func(s Status) bool { return s.Reason == ReasonListUnknown })
		want(t, l.Check(ctx, "a1"), Unknown, SourceNone, ReasonListUnknown)

		r.create("vip", lists.Spec{})
		r.await(l, "draft", func(s Status) bool { return s.Reason == ReasonDraft })
		want(t, l.Check(ctx, "a1"), Unknown, SourceNone, ReasonDraft)

		first := entriesOf("a1", "a2", "a3")
		v1 := r.publish("vip", first)
		r.await(l, "the first version", func(s Status) bool { return s.Version == v1.Number })
		r.ready(l)
		a := l.Check(ctx, "a1")
		want(t, a, Yes, SourceRedis, ReasonNone)
		if a.Version != v1.Number || a.Revision == 0 || a.Stale || a.Age() > 2*time.Second {
			t.Errorf("answer: %+v", a)
		}
		want(t, l.Check(ctx, "a1"), Yes, SourceCache, ReasonNone)
		want(t, l.Peek("a2"), Unknown, SourceNone, ReasonNotLoaded)
		want(t, l.Check(ctx, ""), Unknown, SourceNone, ReasonInvalidID)
		for i := range 100 {
			if a := l.Check(ctx, fmt.Sprint("stranger", i)); a.Verdict != No {
				t.Fatalf("stranger: %+v", a)
			}
		}

		revision := r.edit("vip", add("b1"), drop("a1"))
		r.await(l, "the edit", func(s Status) bool { return s.Revision >= revision })
		want(t, l.Check(ctx, "b1"), Yes, SourceEdits, ReasonNone)
		want(t, l.Check(ctx, "a1"), No, SourceEdits, ReasonNone)

		// The second version has the edit in it: b1 and a1 come from its segments.
		v2 := r.build("vip", entriesOf("b1", "a2", "c1"))
		op := r.beginSwitch("vip", v2.Number)
		r.await(l, "the next version", func(s Status) bool { return s.Next == v2.Number && s.Prepared })
		want(t, l.Check(ctx, "b1"), Yes, SourceEdits, ReasonNone)
		r.awaitReport("vip", v1.Number, v1.Number, v2.Number)
		r.endSwitch("vip", op)
		r.await(l, "the switch", func(s Status) bool { return s.Version == v2.Number && s.Next == 0 })
		want(t, l.Check(ctx, "b1"), Yes, SourceRedis, ReasonNone)
		if a := l.Check(ctx, "a1"); a.Verdict != No { // by the filter, which lets one of 256 pass
			t.Errorf("%+v; want a.Verdict == No", a)
		}
		r.awaitReport("vip", v2.Number, v2.Number)

		// A rollback brings the edit back.
		r.endSwitch("vip", r.beginSwitch("vip", v1.Number))
		r.await(l, "the rollback", func(s Status) bool { return s.Version == v1.Number })
		want(t, l.Check(ctx, "b1"), Yes, SourceEdits, ReasonNone)
		want(t, l.Check(ctx, "a1"), No, SourceEdits, ReasonNone)
		want(t, l.Check(ctx, "a3"), Yes, SourceRedis, ReasonNone)

		_, err := r.Delete(ctx, "vip", lists.AnyVersion, true, nobody)
		r.must(err)
		r.await(l, "the end", func(s Status) bool { return s.Reason == ReasonDeleted })
		r.must(r.FinishDelete(ctx, "vip"))
		r.create("vip", lists.Spec{Form: "integer"})
		r.publish("vip", entriesOf("7"))
		r.await(l, "the new list", func(s Status) bool { return s.Reason == ReasonNone && s.Version > v2.Number })
		want(t, l.Check(ctx, "7"), Yes, SourceRedis, ReasonNone)
		want(t, l.Check(ctx, "07"), Unknown, SourceNone, ReasonInvalidID)
	})
}

// awaitReport waits for a client's report of what it serves and has loaded.
func (r *rig) awaitReport(list string, serves int64, loaded ...int64) {
	r.t.Helper()
	if err := redistest.Await(func(ctx context.Context) bool {
		live, _, err := r.Clients(ctx, list)
		return err == nil && len(live) == 1 && live[0].Serves == serves && fmt.Sprint(live[0].Loaded) == fmt.Sprint(loaded)
	}); err != nil {
		r.t.Fatalf("no client reports %d of %v: %v", serves, loaded, err)
	}
}

func TestCheckAll(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		c := r.open()
		for _, kind := range []filter.Kind{filter.Fuse, filter.Bloom, filter.None} {
			list := string(kind)
			r.create(list, lists.Spec{Settings: lists.Settings{Filter: kind}})
			members := randomIDs(1, 2000)
			r.publish(list, entriesOf(members...))
			r.edit(list, drop(members[0]), add("new"))
			l := c.List(list)
			r.ready(l)
			ids := append([]string{"new", "", "same", "same"}, members...)
			ids = append(ids, randomIDs(2, 1000)...)
			for round := range 2 {
				for i, a := range l.CheckAll(bounded(t), ids) {
					verdict := No
					switch {
					case i == 0 || i > 4 && i < 4+len(members):
						verdict = Yes
					case i == 1:
						verdict = Unknown
					}
					if a.Verdict != verdict || a.Revision != l.Status().Revision {
						t.Fatalf("filter %s, round %d: id %q is %+v, want %s", kind, round, ids[i], a, verdict)
					}
				}
			}
		}
	})
}

// Entries and whole lists end by Redis' clock.
func TestExpiry(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, by func(*rig) *rig) { testExpiry(t, by(newRig(t, redistest.Shared(t)))) })
}

func testExpiry(t *testing.T, r *rig) {
	t.Helper()
	now := time.Now()
	before, after := now.Add(-time.Minute).UnixMilli(), now.Add(time.Minute).UnixMilli()
	r.create("vip", lists.Spec{})
	r.publish("vip", map[string]int64{"old": before, "new": after})
	r.edit("vip", lists.Change{Entry: lists.Entry{ID: "old-edit", ExpiresMS: before}}, lists.Change{Entry: lists.Entry{ID: "new-edit", ExpiresMS: after}})
	l := r.open().List("vip")
	r.ready(l)
	ctx := bounded(t)
	for range 2 {
		for id, verdict := range map[string]Verdict{"old": No, "old-edit": No, "new": Yes, "new-edit": Yes} {
			a := l.Check(ctx, id)
			if a.Verdict != verdict || verdict == Yes && a.ExpiresAt.UnixMilli() != after {
				t.Errorf("%s: %+v; want a.Verdict == %v, verdict != Yes or a.ExpiresAt.UnixMilli() == %v", id, a, verdict, after)
			}
		}
	}
	for expiredNo, verdict := range map[bool]Verdict{false: Unknown, true: No} {
		h, err := r.Set(ctx, "vip", lists.Settings{Expires: now.Add(-time.Minute), ExpiredNo: expiredNo})
		r.must(err)
		r.await(l, "the settings", func(s Status) bool { return s.Revision == h.Revision })
		want(t, l.Check(ctx, "new"), verdict, SourceNone, ReasonExpired)
	}
}

// A small list can be held whole: then no id is asked in Redis.
func TestWhole(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		members := randomIDs(1, 2000)
		entries := entriesOf(members...)
		entries[members[0]] = 1
		r.create("vip", lists.Spec{Settings: lists.Settings{Whole: true}})
		v := r.publish("vip", entries)
		r.edit("vip", drop(members[1]))
		c := r.open()
		l := c.List("vip")
		r.ready(l)
		want(t, l.Peek(members[0]), No, SourceWhole, ReasonNone)
		want(t, l.Peek(members[1]), No, SourceEdits, ReasonNone)
		want(t, l.Peek(members[2]), Yes, SourceWhole, ReasonNone)
		want(t, l.Peek("stranger"), No, SourceWhole, ReasonNone)

		// Without one segment it is not whole: the others are asked in Redis.
		r.must(r.data.Do(bounded(t), r.data.B().Del().Key(lists.SegmentKey(r.prefix, "vip", v.Number, 3)).Build()).Error())
		other := r.open().List("vip")
		r.must(redistest.Await(func(context.Context) bool {
			return other.Check(bounded(t), members[2]).Verdict == Yes || other.Check(bounded(t), members[3]).Verdict == Yes
		}))
		if other.Status().Stale || other.snapshot.Load().ready {
			t.Errorf("status: %+v", other.Status())
		}
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, by func(*rig) *rig) { testClosed(t, by(newRig(t, redistest.Shared(t)))) })
}

func testClosed(t *testing.T, r *rig) {
	t.Helper()
	r.create("vip", lists.Spec{Settings: lists.Settings{Filter: filter.None}})
	r.publish("vip", entriesOf("a1"))
	c := r.open()
	l := c.List("vip")
	r.ready(l)
	r.awaitReport("vip", l.Status().Version, l.Status().Version)
	r.must(c.Close(bounded(t)))
	r.must(c.Close(bounded(t)))
	if live, _, err := r.Clients(bounded(t), "vip"); err != nil || len(live) > 0 {
		t.Errorf("a switch would wait for a closed client: %+v, %v", live, err)
	}
	want(t, l.Check(bounded(t), "a1"), Unknown, SourceNone, ReasonNotLoaded)
	want(t, c.List("other").Check(bounded(t), "a1"), Unknown, SourceNone, ReasonNotLoaded)
	want(t, c.List("no_list").Check(bounded(t), "a1"), Unknown, SourceNone, ReasonListUnknown)
	if _, err := Open(Config{RedisURL: "redis://127.0.0.1:1", KeyPrefix: "{", MaxBytes: 1, Deadline: -1, ClientName: "a b"}); err == nil {
		t.Error("a bad configuration was taken")
	}
}

// The first check waits for its list; one that cannot be had is unknown within the deadline.
func TestFirstCheck(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, by func(*rig) *rig) {
		r := by(newRig(t, redistest.Shared(t)))
		r.create("vip", lists.Spec{})
		r.publish("vip", entriesOf("a1"))
		open := func(deadline time.Duration) *List {
			return r.open(func(c *Config) { c.Deadline = deadline }).List("vip")
		}
		want(t, open(2*time.Second).Check(bounded(t), "a1"), Yes, SourceRedis, ReasonNone)
		all := open(2*time.Second).CheckAll(bounded(t), []string{"a1", ""})
		want(t, all[0], Yes, SourceRedis, ReasonNone)
		want(t, all[1], Unknown, SourceNone, ReasonInvalidID)

		r.url = "redis://127.0.0.1:1"
		if r.replica != "" {
			r.replica = "http://127.0.0.1:1"
		}
		away := open(50 * time.Millisecond)
		for _, check := range []func() Answer{
			func() Answer { return away.Check(context.Background(), "a1") },
			func() Answer { return away.CheckAll(context.Background(), []string{"a1"})[0] },
		} {
			want(t, check(), Unknown, SourceNone, ReasonNotLoaded)
		}
		patient := open(MaxDeadline)
		patient.client.asks.waiting = askLimit
		want(t, patient.Check(bounded(t), "a1"), Unknown, SourceNone, ReasonOverloaded)
		want(t, patient.CheckAll(bounded(t), []string{"a1"})[0], Unknown, SourceNone, ReasonOverloaded)
		want(t, patient.Peek("a1"), Unknown, SourceNone, ReasonNotLoaded)
	})
}
