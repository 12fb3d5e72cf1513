package cell

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redis/redistest"
)

func change(seen uint64, pool string) ConfigChange {
	return ConfigChange{
		Seen: seen, Content: fmt.Appendf(nil, `{"enabled":true,"pools":[{"id":%q}]}`, pool),
		LanguagePairs: map[string]string{"zh:en": pool, "en:zh": pool + ",other"}, Author: "ops/alice", Note: "for " + pool,
	}
}

// apply puts a configuration in force that must be the version after seen.
func (r *rig) apply(c ConfigChange) ConfigOutcome {
	r.t.Helper()
	out, err := r.ApplyConfig(r.ctx(), c)
	if err != nil || out.Unchanged || out.Generation == "" || out.NowMS == 0 {
		r.t.Fatalf("apply: %+v, %v", out, err)
	}
	return out
}

func (r *rig) readConfig() ConfigState {
	r.t.Helper()
	state, err := r.ReadConfig(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

func (r *rig) text(key string) string {
	r.t.Helper()
	m := r.do("GET", key)
	s, _ := m.ToString()
	return s
}

func TestConfigApply(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if got := r.readConfig(); got.Version != 0 || got.Generation != "" || got.Type != "none" || got.Content != nil {
			t.Errorf("before the first: %+v", got)
		}
		if r.readConfig().Server == "" {
			t.Error("the server has no name")
		}
		first := r.apply(change(0, "a"))
		if first.Version != 1 {
			t.Errorf("%+v", first)
		}
		second := r.apply(change(1, "b"))
		if second.Version != 2 || second.Generation != first.Generation {
			t.Errorf("%+v after %+v", second, first)
		}
		got := r.readConfig()
		want := `{"enabled":true,"pools":[{"id":"b"}],"version":2}`
		if string(got.Content) != want || got.Length != len(want) || got.Version != 2 || got.Generation != first.Generation || got.Type != "string" {
			t.Errorf("%+v %s", got, got.Content)
		}
		if d := cmp.Diff(map[string]string{"zh:en": "b", "en:zh": "b,other"}, r.hash(r.l.LanguagePairs())); d != "" {
			t.Error(d)
		}
		if v := r.text(r.l.LanguagePairsVersion()); v != "2" {
			t.Error("index version", v)
		}
	})
}

// TestConfigPairsReplaced: none of an earlier version's pairs stays, and the index has
// a new version only with another content.
func TestConfigPairsReplaced(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		many := change(0, "a")
		for i := range 2500 { // more than one HSET takes
			many.LanguagePairs[fmt.Sprintf("x-%d:y", i)] = "a"
		}
		r.apply(many)
		if got := r.int("HLEN", r.l.LanguagePairs()); got != 2502 {
			t.Error(got)
		}
		same := change(1, "b")
		same.LanguagePairs = many.LanguagePairs
		r.apply(same)
		if v := r.text(r.l.LanguagePairsVersion()); v != "1" {
			t.Error("index version", v)
		}
		none := change(2, "c")
		none.LanguagePairs = nil
		r.apply(none)
		if v := r.text(r.l.LanguagePairsVersion()); v != "3" || r.exists(r.l.LanguagePairs()) {
			t.Error("index version", v)
		}
	})
}

func TestConfigUnchanged(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		first := r.apply(change(0, "a"))
		for _, seen := range []uint64{0, 1, 7} {
			again := change(seen, "a")
			again.Note, again.Author = "another", "bob"
			r.unchanged("the same content", func() {
				out, err := r.ApplyConfig(r.ctx(), again)
				if err != nil || !out.Unchanged || out.Version != 1 || out.Generation != first.Generation {
					t.Errorf("%+v, %v", out, err)
				}
			}, nil)
		}
		// A damaged index is mended by the same content.
		r.do("HSET", r.l.LanguagePairs(), "zh:en", "other")
		r.apply(change(1, "a"))
		if got := r.hash(r.l.LanguagePairs())["zh:en"]; got != "a" {
			t.Error(got)
		}
	})
}

func TestConfigConflict(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.apply(change(0, "a"))
		r.apply(change(1, "b"))
		for _, seen := range []uint64{0, 1, 3, 1 << 52} {
			r.unchanged("a conflict", func() {
				_, err := r.ApplyConfig(r.ctx(), change(seen, "c"))
				var conflict *ConfigConflictError
				if !errors.As(err, &conflict) || *conflict != (ConfigConflictError{Seen: seen, Current: 2}) {
					t.Errorf("seen %d: %v", seen, err)
				}
			}, nil)
		}
	})
}

func TestConfigHistory(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if got, err := r.ConfigVersions(r.ctx()); err != nil || len(got) != 0 {
			t.Error(got, err)
		}
		const made = ConfigHistory + 7
		begin := r.nowMS()
		for i := range made {
			c := change(uint64(i), fmt.Sprintf("p%d", i+1))
			c.Restores = uint64(i / 100)
			r.apply(c)
		}
		entries, err := r.ConfigVersions(r.ctx())
		if err != nil || len(entries) != ConfigHistory {
			t.Fatal(len(entries), err)
		}
		for i, e := range entries {
			version := uint64(made - i)
			want := ConfigEntry{Version: version, Action: "apply", Author: "ops/alice", Note: fmt.Sprintf("for p%d", version), Restores: (version - 1) / 100, AtMS: e.AtMS, Paused: "{}"}
			if want.Restores > 0 {
				want.Action = "rollback"
			}
			if e != want || e.AtMS < begin || i > 0 && e.AtMS > entries[i-1].AtMS {
				t.Errorf("%+v, expected %+v", e, want)
			}
			entry, content, err := r.ConfigAt(r.ctx(), version)
			if err != nil || entry != want || !bytes.Equal(content, change(0, fmt.Sprintf("p%d", version)).Content) {
				t.Errorf("version %d: %+v %s %v", version, entry, content, err)
			}
		}
		if n := r.int("HLEN", r.l.ConfigHistory()); n != 2*ConfigHistory {
			t.Error(n, "fields")
		}
		for _, version := range []uint64{0, 7, made + 1} {
			_, _, err := r.ConfigAt(r.ctx(), version)
			wantErr(t, err, freeslot.CodeNotFound)
		}
	})
}

// TestConfigRace: of several that saw the same version exactly one wins, every winner
// is in the history, and each version's message is published once, in order.
func TestConfigRace(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		messages := r.hearConfig()
		const appliers, rounds = 8, 25
		var mu sync.Mutex
		winner := make(map[uint64]string)
		var group sync.WaitGroup
		for a := range appliers {
			group.Go(func() {
				seen := uint64(0)
				for n := 0; n < rounds; {
					name := fmt.Sprintf("a%d-%d", a, n)
					out, err := r.ApplyConfig(r.ctx(), change(seen, name))
					var conflict *ConfigConflictError
					switch {
					case errors.As(err, &conflict):
						seen = conflict.Current
					case err != nil || out.Unchanged || out.Version != seen+1:
						t.Errorf("%+v, %v after %d", out, err, seen)
						return
					default:
						mu.Lock()
						if other, twice := winner[out.Version]; twice {
							t.Errorf("%s and %s both made version %d", other, name, out.Version)
						}
						winner[out.Version] = name
						mu.Unlock()
						seen, n = out.Version, n+1
					}
				}
			})
		}
		group.Wait()
		const last = appliers * rounds
		if len(winner) != last {
			t.Errorf("%d versions", len(winner))
		}
		entries, err := r.ConfigVersions(r.ctx())
		if err != nil || len(entries) != ConfigHistory {
			t.Fatal(len(entries), err)
		}
		for i, e := range entries {
			if e.Version != uint64(last-i) || e.Note != "for "+winner[e.Version] {
				t.Errorf("%+v, expected %s", e, winner[e.Version])
			}
		}
		for version := 1; version <= last; version++ {
			var m struct {
				EventType   string `json:"event_type"`
				ConfigType  string `json:"config_type"`
				Version     int    `json:"version"`
				TimestampMS int64  `json:"timestamp_ms"`
			}
			text := receive(t, messages)
			dec := json.NewDecoder(strings.NewReader(text))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&m); err != nil || m.EventType != "phase3_config_update" || m.ConfigType != "phase3" || m.Version != version || m.TimestampMS == 0 {
				t.Fatalf("message %d is %s: %v", version, text, err)
			}
		}
	})
}

// hearConfig returns when the subscription stands.
func (r *rig) hearConfig() <-chan string {
	r.t.Helper()
	messages, ready, done := make(chan string, 1<<12), make(chan struct{}, 1), make(chan struct{})
	client := r.redis.Client(r.t)
	ctx, cancel := contextWithHook(ready)
	go func() {
		defer close(done)
		_ = client.Receive(ctx, client.B().Subscribe().Channel(r.l.ConfigEvents()).Build(), func(m rueidis.PubSubMessage) { messages <- m.Message })
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	receive(r.t, ready)
	return messages
}

// TestConfigBroken: whatever an operator does to the keys, the next apply makes all of
// them whole, and versions do not go back while the history knows them.
func TestConfigBroken(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		damage := map[string]func(){
			"counter lost":         func() { r.do("DEL", r.l.ConfigVersion()) },
			"counter of the seed":  func() { r.do("SET", r.l.ConfigVersion(), "12") },
			"counter not a number": func() { r.do("HSET", r.l.ConfigVersion(), "revision", "many") },
			"counter negative":     func() { r.do("HSET", r.l.ConfigVersion(), "revision", "-1") },
			"counter too large":    func() { r.do("HSET", r.l.ConfigVersion(), "revision", "10000000000000000") },
			"generation lost":      func() { r.do("HDEL", r.l.ConfigVersion(), "generation") },
		}
		version := r.apply(change(0, "a")).Version
		for i, name := range slices.Sorted(maps.Keys(damage)) {
			before := r.readConfig()
			damage[name]()
			if got := r.readConfig(); got.Version != 0 || got.Generation != "" || !bytes.Equal(got.Content, before.Content) {
				t.Errorf("%s: %+v", name, got)
			}
			out := r.apply(change(0, fmt.Sprintf("b%d", i)))
			if version++; out.Version != version || out.Generation == before.Generation {
				t.Errorf("%s: %+v, expected version %d and another generation than %s", name, out, version, before.Generation)
			}
		}
		for name, breakIt := range map[string]func(){
			"a list":       func() { r.do("DEL", r.l.Config()); r.do("RPUSH", r.l.Config(), "x") },
			"no pairs":     func() { r.do("DEL", r.l.LanguagePairs()) },
			"pairs as set": func() { r.do("DEL", r.l.LanguagePairs()); r.do("SADD", r.l.LanguagePairs(), "x") },
			"index a list": func() {
				r.do("DEL", r.l.LanguagePairsVersion())
				r.do("RPUSH", r.l.LanguagePairsVersion(), "x")
			},
			"more in history": func() { r.do("HSET", r.l.ConfigHistory(), "x", "y", "7:other", "z", "3:meta", "{") },
		} {
			breakIt()
			out := r.apply(change(version, "c-"+strings.ReplaceAll(name, " ", "-")))
			if version++; out.Version != version {
				t.Errorf("%s: %+v, expected version %d", name, out, version)
			}
			if got := r.hash(r.l.LanguagePairs()); len(got) != 2 {
				t.Errorf("%s: pairs %v", name, got)
			}
		}
		if v := r.text(r.l.LanguagePairsVersion()); v != strconv.FormatUint(version, 10) {
			t.Errorf("index version %s, expected %d", v, version)
		}
		// The unreadable entry is left out, its content stays readable.
		entries, err := r.ConfigVersions(r.ctx())
		if err != nil || len(entries) != int(version)-1 {
			t.Errorf("%d of %d versions, %v", len(entries), version, err)
		}
		if entry, content, err := r.ConfigAt(r.ctx(), 3); err != nil || entry != (ConfigEntry{Version: 3}) || len(content) == 0 {
			t.Errorf("%+v %s %v", entry, content, err)
		}
		r.do("DEL", r.l.ConfigHistory())
		r.do("SADD", r.l.ConfigHistory(), "x")
		if _, err := r.ConfigVersions(r.ctx()); err == nil {
			t.Error("a history of the wrong type is read")
		}
		r.do("DEL", r.l.ConfigVersion())
		if out := r.apply(change(0, "last")); out.Version != 1 {
			t.Errorf("without counter and history: %+v", out)
		}
		if entries, err := r.ConfigVersions(r.ctx()); err != nil || len(entries) != 1 {
			t.Errorf("%+v %v", entries, err)
		}
	})
}

func TestConfigTooLarge(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		long := func(n int) []byte {
			return fmt.Appendf(nil, `{"enabled":true,"pools":[],"x":%q}`, strings.Repeat("x", n))
		}
		c := change(0, "a")
		c.Content = long(MaxConfigBytes - 100)
		r.apply(c)
		if got := r.readConfig(); !bytes.HasPrefix(got.Content, long(MaxConfigBytes - 100)[:1000]) {
			t.Errorf("%d bytes", len(got.Content))
		}
		c.Content, c.Seen = long(MaxConfigBytes), 1
		_, err := r.ApplyConfig(r.ctx(), c)
		wantErr(t, err, freeslot.CodeInvalidArgument)
		r.do("SET", r.l.Config(), string(long(MaxConfigBytes)))
		if got := r.readConfig(); got.Content != nil || got.Length <= MaxConfigBytes || got.Version != 1 {
			t.Errorf("%d of %d bytes, version %d", len(got.Content), got.Length, got.Version)
		}
	})
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	bad := map[string]func(*ConfigChange){
		"config":       func(c *ConfigChange) { c.Content = nil },
		"config ":      func(c *ConfigChange) { c.Content = []byte("{}") },
		"config  ":     func(c *ConfigChange) { c.Content = []byte(`["a"]`) },
		"config   ":    func(c *ConfigChange) { c.Content = []byte(`{"a":1}{"b":2}`) },
		"note":         func(c *ConfigChange) { c.Note = "\x1b[31m" },
		"note ":        func(c *ConfigChange) { c.Note = strings.Repeat("x", maxConfigNote+1) },
		"note  ":       func(c *ConfigChange) { c.Note = "\xff" },
		"author":       func(c *ConfigChange) { c.Author = strings.Repeat("x", maxConfigAuthor+1) },
		"author ":      func(c *ConfigChange) { c.Author = "a\nb" },
		"config.pools": func(c *ConfigChange) { c.LanguagePairs = manyPairs() },
	}
	for field, spoil := range bad {
		c := change(0, "a")
		spoil(&c)
		_, err := (&Cell{}).ApplyConfig(t.Context(), c)
		var e *freeslot.Error
		if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument || e.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func manyPairs() map[string]string {
	out := make(map[string]string)
	for i := range MaxLanguagePairs + 1 {
		out[fmt.Sprintf("a-%d:b", i)] = "p"
	}
	return out
}

// TestConfigOutOfMemory: an apply that Redis refuses leaves nothing behind.
func TestConfigOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.apply(change(0, "a"))
	r.do("CONFIG", "SET", "maxmemory", "1mb")
	large := change(1, "b")
	r.unchanged("an apply without memory", func() {
		if out, err := r.ApplyConfig(r.ctx(), large); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%+v, %v", out, err)
		}
	}, nil)
	if out, err := r.ApplyConfig(r.ctx(), change(0, "a")); err != nil || !out.Unchanged {
		t.Errorf("the same again: %+v, %v", out, err)
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
	r.apply(large)
}
