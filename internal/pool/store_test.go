package pool

import (
	"bytes"
	"context"
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
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	r := rigOn(t, scripttest.NewRig(t, redistest.Shared(t), func(c *script.Config) { c.Layout = script.Layouts(c.Layout.Prefix, 3, false)[2] }))
	r.putNew(edit{
		content: []byte(`{"enabled":true}`), pairs: map[string]string{"de-en": "gpu"}, paused: []byte(`{}`),
		entry: ConfigEntry{Author: "ops", Note: "n"},
	})
	r.CheckRecords(t)
}

// storeBackends is [backends], also in the third of four cells.
func storeBackends(t *testing.T, suite func(t *testing.T, r *rig)) {
	t.Helper()
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) { suite(t, rigOn(t, r)) })
}

func editTo(seen uint64, pool string) edit {
	return edit{
		seen: seen, content: fmt.Appendf(nil, `{"enabled":true,"pools":[{"id":%q}]}`, pool),
		pairs: map[string]string{"zh:en": pool, "en:zh": pool + ",other"}, entry: ConfigEntry{Author: "ops/alice", Note: "for " + pool},
	}
}

// putNew puts a configuration in force that must be the version after seen.
func (r *rig) putNew(e edit) Outcome {
	r.t.Helper()
	out, err := r.store.put(r.t.Context(), e)
	if err != nil || out.Unchanged || out.Generation == "" || out.NowMS == 0 {
		r.t.Fatalf("put: %+v, %v", out, err)
	}
	return out
}

func (r *rig) stored() stored {
	r.t.Helper()
	state, err := r.store.stored(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

func TestStoreApply(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		if got := r.stored(); got.version != 0 || got.generation != "" || got.kind != "none" || got.content != nil {
			t.Errorf("before the first: %+v", got)
		}
		if r.stored().server == "" {
			t.Error("the server has no name")
		}
		first := r.putNew(editTo(0, "a"))
		if first.Version != 1 {
			t.Errorf("%+v; want first.Version == 1", first)
		}
		second := r.putNew(editTo(1, "b"))
		if second.Version != 2 || second.Generation != first.Generation {
			t.Errorf("%+v after %+v", second, first)
		}
		got := r.stored()
		want := `{"enabled":true,"pools":[{"id":"b"}],"version":2}`
		if string(got.content) != want || got.length != len(want) || got.version != 2 || got.generation != first.Generation || got.kind != "string" {
			t.Errorf(`%+v %s; want string(got.content) == %v, got.length == len(want), got.version == 2, got.generation == %v, got.kind == "string"`, got, got.content, want, first.Generation)
		}
		if d := cmp.Diff(map[string]string{"zh:en": "b", "en:zh": "b,other"}, r.Hash(r.keys.pairs)); d != "" {
			t.Error(d)
		}
		if v := r.Text(r.keys.pairsVersion); v != "2" {
			t.Error("index version", v)
		}
	})
}

// TestStorePairsReplaced: none of an earlier version's pairs stays, and the index has
// a new version only with another content.
func TestStorePairsReplaced(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		many := editTo(0, "a")
		for i := range 2500 { // more than one HSET takes
			many.pairs[fmt.Sprintf("x-%d:y", i)] = "a"
		}
		r.putNew(many)
		if got := r.Int("HLEN", r.keys.pairs); got != 2502 {
			t.Error(got)
		}
		same := editTo(1, "b")
		same.pairs = many.pairs
		r.putNew(same)
		if v := r.Text(r.keys.pairsVersion); v != "1" {
			t.Error("index version", v)
		}
		none := editTo(2, "c")
		none.pairs = nil
		r.putNew(none)
		if v := r.Text(r.keys.pairsVersion); v != "3" || r.Exists(r.keys.pairs) {
			t.Error("index version", v)
		}
	})
}

func TestStoreUnchanged(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		first := r.putNew(editTo(0, "a"))
		for _, seen := range []uint64{0, 1, 7} {
			again := editTo(seen, "a")
			again.entry.Note, again.entry.Author = "another", "bob"
			r.Unchanged("the same content", func() {
				out, err := r.store.put(r.t.Context(), again)
				if err != nil || !out.Unchanged || out.Version != 1 || out.Generation != first.Generation {
					t.Errorf("%+v, %v; want no error, out.Unchanged, out.Version == 1, out.Generation == %v", out, err, first.Generation)
				}
			})
		}
		// A damaged index is mended by the same content.
		r.Do("HSET", r.keys.pairs, "zh:en", "other")
		r.putNew(editTo(1, "a"))
		if got := r.Hash(r.keys.pairs)["zh:en"]; got != "a" {
			t.Error(got)
		}
	})
}

func TestStoreConflict(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		r.putNew(editTo(0, "a"))
		r.putNew(editTo(1, "b"))
		for _, seen := range []uint64{0, 1, 3, 1 << 52} {
			r.Unchanged("a conflict", func() {
				_, err := r.store.put(r.t.Context(), editTo(seen, "c"))
				var conflict *ConflictError
				if !errors.As(err, &conflict) || *conflict != (ConflictError{Seen: seen, Current: 2}) {
					t.Errorf("seen %d: %v", seen, err)
				}
			})
		}
	})
}

func TestStoreHistory(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		if got, err := r.store.Versions(r.t.Context()); err != nil || len(got) != 0 {
			t.Error(got, err)
		}
		const made = historyKept + 7
		begin := r.NowMS()
		for i := range made {
			c := editTo(uint64(i), fmt.Sprintf("p%d", i+1))
			c.entry.Restores = uint64(i / 100)
			r.putNew(c)
		}
		entries, err := r.store.Versions(r.t.Context())
		if err != nil || len(entries) != historyKept {
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
			entry, content, err := r.store.entry(r.t.Context(), version)
			if err != nil || entry != want || !bytes.Equal(content, editTo(0, fmt.Sprintf("p%d", version)).content) {
				t.Errorf("version %d: %+v %s %v", version, entry, content, err)
			}
		}
		if n := r.Int("HLEN", r.keys.history); n != 2*historyKept {
			t.Error(n, "fields")
		}
		for _, version := range []uint64{0, 7, made + 1} {
			_, _, err := r.store.entry(r.t.Context(), version)
			if freeslot.CodeOf(err) != freeslot.CodeNotFound {
				t.Errorf("version %d: %v", version, err)
			}
		}
	})
}

// TestStoreRace: of several that saw the same version exactly one wins, every winner
// is in the history, and each version's message is published once, in order.
func TestStoreRace(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
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
					out, err := r.store.put(r.t.Context(), editTo(seen, name))
					var conflict *ConflictError
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
		entries, err := r.store.Versions(r.t.Context())
		if err != nil || len(entries) != historyKept {
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
			text := receive(t, messages, "a message")
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
	messages, ready, done := make(chan string, 1<<12), make(chan struct{}), make(chan struct{})
	client := r.Redis.Client(r.t)
	ctx, cancel := context.WithCancel(rueidis.WithOnSubscriptionHook(context.Background(), func(rueidis.PubSubSubscription) { close(ready) }))
	go func() {
		defer close(done)
		_ = client.Receive(ctx, client.B().Subscribe().Channel(r.keys.channel).Build(), func(m rueidis.PubSubMessage) { messages <- m.Message })
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	receive(r.t, ready, "the subscription")
	return messages
}

// TestStoreBroken: whatever an operator does to the keys, the next apply makes all of
// them whole, and versions do not go back while the history knows them.
func TestStoreBroken(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		damage := map[string]func(){
			"counter lost":         func() { r.Do("DEL", r.keys.version) },
			"counter of the seed":  func() { r.Do("SET", r.keys.version, "12") },
			"counter not a number": func() { r.Do("HSET", r.keys.version, "revision", "many") },
			"counter negative":     func() { r.Do("HSET", r.keys.version, "revision", "-1") },
			"counter too large":    func() { r.Do("HSET", r.keys.version, "revision", "10000000000000000") },
			"generation lost":      func() { r.Do("HDEL", r.keys.version, "generation") },
		}
		version := r.putNew(editTo(0, "a")).Version
		for i, name := range slices.Sorted(maps.Keys(damage)) {
			before := r.stored()
			damage[name]()
			if got := r.stored(); got.version != 0 || got.generation != "" || !bytes.Equal(got.content, before.content) {
				t.Errorf(`%s: %+v; want got.version == 0, got.generation == "", bytes.Equal(got.content, before.content)`, name, got)
			}
			out := r.putNew(editTo(0, fmt.Sprintf("b%d", i)))
			if version++; out.Version != version || out.Generation == before.generation {
				t.Errorf("%s: %+v, expected version %d and another generation than %s", name, out, version, before.generation)
			}
		}
		for name, breakIt := range map[string]func(){
			"a list":       func() { r.Do("DEL", r.keys.document); r.Do("RPUSH", r.keys.document, "x") },
			"no pairs":     func() { r.Do("DEL", r.keys.pairs) },
			"pairs as set": func() { r.Do("DEL", r.keys.pairs); r.Do("SADD", r.keys.pairs, "x") },
			"index a list": func() {
				r.Do("DEL", r.keys.pairsVersion)
				r.Do("RPUSH", r.keys.pairsVersion, "x")
			},
			"more in history": func() { r.Do("HSET", r.keys.history, "x", "y", "7:other", "z", "3:meta", "{") },
		} {
			breakIt()
			out := r.putNew(editTo(version, "c-"+strings.ReplaceAll(name, " ", "-")))
			if version++; out.Version != version {
				t.Errorf("%s: %+v, expected version %d", name, out, version)
			}
			if got := r.Hash(r.keys.pairs); len(got) != 2 {
				t.Errorf("%s: pairs %v", name, got)
			}
		}
		if v := r.Text(r.keys.pairsVersion); v != strconv.FormatUint(version, 10) {
			t.Errorf("index version %s, expected %d", v, version)
		}
		// The unreadable entry is left out, its content stays readable.
		entries, err := r.store.Versions(r.t.Context())
		if err != nil || len(entries) != int(version)-1 {
			t.Errorf("%d of %d versions, %v", len(entries), version, err)
		}
		if entry, content, err := r.store.entry(r.t.Context(), 3); err != nil || entry != (ConfigEntry{Version: 3}) || len(content) == 0 {
			t.Errorf("%+v %s %v; want no error, entry == (ConfigEntry{Version: 3}), len(content) != 0", entry, content, err)
		}
		r.Do("DEL", r.keys.history)
		r.Do("SADD", r.keys.history, "x")
		if _, err := r.store.Versions(r.t.Context()); err == nil {
			t.Error("a history of the wrong type is read")
		}
		r.Do("DEL", r.keys.version)
		if out := r.putNew(editTo(0, "last")); out.Version != 1 {
			t.Errorf("without counter and history: %+v", out)
		}
		if entries, err := r.store.Versions(r.t.Context()); err != nil || len(entries) != 1 {
			t.Errorf("%+v %v; want no error, len(entries) == 1", entries, err)
		}
	})
}

func TestStoreTooLarge(t *testing.T) {
	storeBackends(t, func(t *testing.T, r *rig) {
		long := func(n int) []byte {
			return fmt.Appendf(nil, `{"enabled":true,"pools":[],"x":%q}`, strings.Repeat("x", n))
		}
		c := editTo(0, "a")
		c.content = long(maxBytes - 100)
		r.putNew(c)
		if got := r.stored(); !bytes.HasPrefix(got.content, long(maxBytes - 100)[:1000]) {
			t.Errorf("%d bytes", len(got.content))
		}
		c.content, c.seen = long(maxBytes), 1
		_, err := r.store.put(r.t.Context(), c)
		if freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Error(err)
		}
		r.Do("SET", r.keys.document, string(long(maxBytes)))
		if got := r.stored(); got.content != nil || got.length <= maxBytes || got.version != 1 {
			t.Errorf("%d of %d bytes, version %d", len(got.content), got.length, got.version)
		}
	})
}

func TestStoreRefused(t *testing.T) {
	t.Parallel()
	bad := map[string]func(*edit){
		"config":       func(c *edit) { c.content = nil },
		"config ":      func(c *edit) { c.content = []byte("{}") },
		"config  ":     func(c *edit) { c.content = []byte(`["a"]`) },
		"config   ":    func(c *edit) { c.content = []byte(`{"a":1}{"b":2}`) },
		"note":         func(c *edit) { c.entry.Note = "\x1b[31m" },
		"note ":        func(c *edit) { c.entry.Note = strings.Repeat("x", maxNote+1) },
		"note  ":       func(c *edit) { c.entry.Note = "\xff" },
		"author":       func(c *edit) { c.entry.Author = strings.Repeat("x", maxAuthor+1) },
		"author ":      func(c *edit) { c.entry.Author = "a\nb" },
		"config.pools": func(c *edit) { c.pairs = manyPairs() },
	}
	for field, spoil := range bad {
		c := editTo(0, "a")
		spoil(&c)
		_, err := (&Store{}).put(t.Context(), c)
		var e *freeslot.Error
		if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument || e.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v; want errors.As(err, &e), e.Code == freeslot.CodeInvalidArgument, e.Field == strings.TrimSpace(field)", field, err)
		}
	}
}

func manyPairs() map[string]string {
	out := make(map[string]string)
	for i := range maxPairs + 1 {
		out[fmt.Sprintf("a-%d:b", i)] = "p"
	}
	return out
}

// TestStoreOutOfMemory: an apply that Redis refuses leaves nothing behind.
func TestStoreOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.putNew(editTo(0, "a"))
	r.Do("CONFIG", "SET", "maxmemory", "1mb")
	large := editTo(1, "b")
	r.Unchanged("an apply without memory", func() {
		if out, err := r.store.put(r.t.Context(), large); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf(`%+v, %v; want an error, strings.Contains(err.Error(), "OOM")`, out, err)
		}
	})
	if out, err := r.store.put(r.t.Context(), editTo(0, "a")); err != nil || !out.Unchanged {
		t.Errorf("the same again: %+v, %v", out, err)
	}
	r.Do("CONFIG", "SET", "maxmemory", "0")
	r.putNew(large)
}
