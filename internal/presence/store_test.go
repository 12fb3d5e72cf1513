package presence

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t), func(c *script.Config) { c.Layout = script.Layouts(c.Layout.Prefix, 3, false)[2] })
	s := NewStore(r.Runner)
	if _, err := s.Present(t.Context(), Replica{Name: "r1", HeartbeatLimit: 8 * time.Second}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := s.Follow(t.Context(), "r1", 7, "g"); err != nil {
		t.Fatal(err)
	}
	r.CheckRecords(t)
}

func TestPresence(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		s := NewStore(r.Runner)
		present := func(replica string, limit time.Duration, want ...string) {
			t.Helper()
			got, err := s.Present(t.Context(), Replica{Name: replica}, limit)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(replicas(want...), got, cmpopts.IgnoreFields(Replica{}, "AtMS", "ReadsHeartbeats")); diff != "" {
				t.Error(diff)
			}
		}
		leave := func(replica string) {
			t.Helper()
			if err := s.Leave(t.Context(), replica, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		present("b", time.Minute, "b")
		present("a", time.Minute, "a", "b")
		present("a", time.Minute, "a", "b")
		leave("b")
		leave("b")
		present("a", time.Minute, "a")
		leave("a")
		if r.Exists(s.keys.replicas) || r.Exists(s.keys.limits) {
			t.Error("a key is left of replicas that left")
		}
	})
}

// TestPresenceEnds: a silent replica is dropped, and when all are silent the key goes too.
func TestPresenceEnds(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	s := NewStore(r.Runner)
	if _, err := s.Present(t.Context(), Replica{Name: "dead", HeartbeatLimit: time.Second}, time.Minute); err != nil {
		t.Fatal(err)
	}
	const limit = 50 * time.Millisecond // by Redis' clock
	waittest.Until(t, "the silent replica to be dropped", func() bool {
		got, err := s.Present(t.Context(), Replica{Name: "alive", HeartbeatLimit: 2 * time.Second}, limit)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 1 && got[0].Name == "alive" && got[0].HeartbeatLimit == 2*time.Second
	})
	if n := r.Int("HLEN", s.keys.limits); n != 1 {
		t.Errorf("%d heartbeat limits of one replica", n)
	}
	if ttl := r.Int("PTTL", s.keys.replicas); ttl > limit.Milliseconds() || ttl == -1 {
		t.Errorf("the key lives for %d ms more", ttl)
	}
}

func TestFollow(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		s := NewStore(r.Runner)
		for _, name := range []string{"b", "a", "c"} {
			if _, err := s.Present(t.Context(), Replica{Name: name}, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		behind := func(version uint64, generation string, want ...string) {
			t.Helper()
			if got, err := s.Behind(t.Context(), version, generation); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v are behind %d of %s, expected %v, %v", got, version, generation, want, err)
			}
		}
		follow := func(name string, version uint64, generation string) {
			t.Helper()
			if err := s.Follow(t.Context(), name, version, generation); err != nil {
				t.Fatal(err)
			}
		}
		behind(1, "g", "a", "b", "c")
		follow("a", 2, "g")
		follow("c", 0, "")
		follow("gone", 1, "g")
		behind(2, "g", "b", "c")
		behind(3, "g", "a", "b", "c")
		behind(1, "h", "a", "b", "c")
		follow("b", 10, "g")
		follow("c", 2, "g")
		behind(2, "g")
		// A replica that has not repeated it for long is forgotten with the next call.
		r.Do("HSET", s.keys.followed, "gone", "1 g 1", "odd", "?")
		follow("a", 2, "g")
		if left := r.Hash(s.keys.followed); len(left) != 3 {
			t.Errorf("%v; want len(left) == 3", left)
		}
		r.Do("SET", s.keys.followed, "x")
		follow("a", 2, "g")
		behind(2, "g", "b", "c")
	})
}

// TestFigures: each replica gets the others' figures as they were sent. A replica of an older
// release, which neither sends figures nor removes those of the dead, is listed without any.
func TestFigures(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		s := NewStore(r.Runner)
		const binary = "\x01\x00\xff '\r\n"
		present := func(name, figures string, want ...string) {
			t.Helper()
			all, err := s.Present(t.Context(), Replica{Name: name, Figures: figures}, time.Minute)
			var got []string
			for _, r := range all {
				got = append(got, r.Name+"="+r.Figures)
				if now := r.AtMS; now < 1 {
					t.Errorf("%s reported at %d ms; want Redis' time", r.Name, now)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		if _, err := s.Present(t.Context(), Replica{Name: "b", Status: "well"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		present("b", binary, "b="+binary)
		if all, err := s.Statuses(t.Context()); err != nil || len(all) != 1 || all["b"] != "well" {
			t.Errorf("statuses %v, %v; want that b is well", all, err)
		}
		r.Do("ZADD", s.keys.replicas, strconv.FormatInt(r.NowMS(), 10), "old")
		present("a", "x", "a=x", "b="+binary, "old=")
		r.Do("ZREM", s.keys.replicas, "b") // as an older release removes it
		present("a", "y", "a=y", "old=")
		if all, err := s.Statuses(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("statuses %v, %v; want none of the dead", all, err)
		}
		if left := r.Hash(s.keys.figures); len(left) != 1 {
			t.Errorf("figures of %v are left; want those of a", left)
		}
		if ttl := r.Int("PTTL", s.keys.figures); ttl <= 0 {
			t.Errorf("the figures live for %d ms; want them to expire", ttl)
		}
	})
}

// TestLacking: only a running replica whose status names the feature has it.
func TestLacking(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		s := NewStore(r.Runner)
		present := func(name, status string, want ...string) {
			t.Helper()
			if _, err := s.Present(t.Context(), Replica{Name: name, Status: status}, time.Minute); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Lacking(t.Context(), FeatureExpects); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v lack it, expected %v, %v", got, want, err)
			}
		}
		present("new", `{"features":["other","expects"]}`)
		present("old", `{"build":"v1"}`, "old")
		present("odd", "?", "odd", "old")
		present("none", "", "none", "odd", "old")
		present("old", `{"features":["expects"]}`, "none", "odd")
		for _, name := range []string{"odd", "none"} {
			if err := s.Leave(t.Context(), name, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		present("old", "")
	})
}

// TestEarlierReplicaReturns: an earlier release that takes the name of a killed replica within the
// limit does not read heartbeats, although that one did.
func TestEarlierReplicaReturns(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		s := NewStore(r.Runner)
		present := func(name string, want bool) {
			t.Helper()
			all, err := s.Present(t.Context(), Replica{Name: name, HeartbeatLimit: time.Second}, time.Minute)
			if err != nil || AllReadHeartbeats(all) != want {
				t.Errorf("%+v, %v, want that all read heartbeats: %t", all, err, want)
			}
			for _, replica := range all {
				if replica.HeartbeatLimit != time.Second {
					t.Errorf("%s has a limit of %s, want 1s", replica.Name, replica.HeartbeatLimit)
				}
			}
		}
		present("b", true)
		present("a", true)
		r.Do("ZADD", s.keys.replicas, strconv.FormatInt(r.NowMS(), 10), "b")
		r.Do("HSET", s.keys.limits, "b", "1000")
		present("a", false)
		present("b", true)
	})
}
