package scripttest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// Patience bounds every wait of a test. Only a test that hangs takes that long.
const Patience = 20 * time.Second

// Rig is one cell with keys of its own: a runner for the scripts of a feature, and a client to look
// into Redis.
type Rig struct {
	*script.Runner
	Redis *redistest.Target

	t      testing.TB
	client rueidis.Client
}

// NewRig makes the only cell of a system. change can make it another cell.
func NewRig(t testing.TB, redis *redistest.Target, change ...func(*script.Config)) *Rig {
	t.Helper()
	cfg := script.Config{Layout: script.Layouts(redis.Prefix(t), 1, redis.IsCluster())[0], CallTimeout: Patience}
	for _, f := range change {
		f(&cfg)
	}
	return &Rig{
		Runner: script.NewRunner(cfg, redis.RoleClient(t), zaptest.NewLogger(t), nil), Redis: redis, t: t,
		client: redis.Client(t),
	}
}

// Backends runs a suite in parallel on the single server and on the cluster, each time with a rig
// of its own: the only cell, and the third of four.
func Backends(t *testing.T, suite func(t *testing.T, r *Rig)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		t.Run("cells=1", func(t *testing.T) { t.Parallel(); suite(t, NewRig(t, redis)) })
		t.Run("cells=4", func(t *testing.T) { t.Parallel(); suite(t, NewRig(t, redis, third)) })
	})
}

// third makes the cell the third of four.
func third(c *script.Config) {
	c.Layout = script.Layouts(c.Layout.Prefix, 4, c.Layout.Sharded)[2]
}

// Guard makes a script fail if it reads beyond the end of KEYS or ARGV. Lua returns nil there, so a
// caller that passes too few would go unnoticed. Guard changes the set; call it before the first
// test.
func Guard(set script.Set) {
	line := `local %[1]s = setmetatable({unpack(%[1]s)}, {__index = function(t, i) error('%[1]s[' .. tostring(i) .. '] of ' .. #t) end})` + "\n"
	guard := fmt.Sprintf(line, "KEYS") + fmt.Sprintf(line, "ARGV")
	for name, s := range set {
		set[name] = script.New(name, guard+s.Text(false))
	}
}

// CheckKeys compares the fields that keysOf returns, a struct of key names, with the golden file
// keys.txt: other programs may read the keys, and another release must find them.
func CheckKeys[T any](t *testing.T, keysOf func(script.Layout) T) {
	t.Helper()
	var out strings.Builder
	for _, of := range []struct {
		what   string
		layout script.Layout
	}{
		{"one cell on a server", script.Layouts("scheduler", 1, false)[0]},
		{"one cell on a cluster", script.Layouts("scheduler", 1, true)[0]},
		{"the third of three cells on servers", script.Layouts("fleet", 3, false)[2]},
		{"the third of three cells on a cluster", script.Layouts("fleet", 3, true)[2]},
	} {
		var names []string
		keys := reflect.ValueOf(keysOf(of.layout))
		for i := range keys.NumField() {
			names = append(names, keys.Field(i).String())
		}
		slices.Sort(names)
		fmt.Fprintf(&out, "# %s, sharded events: %v\n%s\n\n", of.what, of.layout.Sharded, strings.Join(names, "\n"))
	}
	golden.Check(t, "keys.txt", out.String())
}

// Do runs one command beside the runner. In a cluster the second word must be the key, as in all
// commands that tests use.
func (r *Rig) Do(args ...string) *rueidis.RedisMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := r.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	}
	m, err := r.client.Do(ctx, cmd.Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return &m
}

// Int returns the answer to a command that answers with an integer.
func (r *Rig) Int(args ...string) int64 { r.t.Helper(); return must(r.t, r.Do(args...).AsInt64) }

// Exists reports whether the key exists.
func (r *Rig) Exists(key string) bool { r.t.Helper(); return r.Int("EXISTS", key) == 1 }

// Text returns the string at key; "" if there is none.
func (r *Rig) Text(key string) string {
	r.t.Helper()
	m := r.Do("GET", key)
	if m.IsNil() {
		return ""
	}
	return must(r.t, m.ToString)
}

// Hash returns the hash at key.
func (r *Rig) Hash(key string) map[string]string {
	r.t.Helper()
	return must(r.t, r.Do("HGETALL", key).AsStrMap)
}

// Scores returns the sorted set at key.
func (r *Rig) Scores(key string) map[string]float64 {
	r.t.Helper()
	out := make(map[string]float64)
	for _, z := range must(r.t, r.Do("ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores) {
		out[z.Member] = z.Score
	}
	return out
}

// NowMS returns the time by Redis' clock.
func (r *Rig) NowMS() int64 {
	r.t.Helper()
	return r.Int("EVAL", `local t = redis.call('TIME') return math.floor(t[1] * 1000 + t[2] / 1000)`, "0")
}

// Keys returns the names of all keys under the prefix, sorted.
func (r *Rig) Keys() []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	found := make(map[string]bool)
	for _, node := range r.client.Nodes() {
		for cursor, done := uint64(0), false; !done; done = cursor == 0 {
			scan := node.B().Scan().Cursor(cursor).Match(r.Layout().Prefix + ":*").Count(10_000).Build()
			e := must(r.t, node.Do(ctx, scan).AsScanEntry)
			for _, key := range e.Elements {
				found[key] = true
			}
			cursor = e.Cursor
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Dump returns every key under the prefix as text, by its name without the prefix: type, time to
// live and content.
func (r *Rig) Dump() map[string]string {
	r.t.Helper()
	out := make(map[string]string)
	for _, key := range r.Keys() {
		out[strings.TrimPrefix(key, r.Layout().Prefix+":")] = r.show(key)
	}
	return out
}

func (r *Rig) show(key string) string {
	r.t.Helper()
	kind := must(r.t, r.Do("TYPE", key).ToString)
	var lines []string
	switch kind {
	case "hash":
		for f, v := range r.Hash(key) {
			lines = append(lines, f+"="+v)
		}
	case "set":
		lines = must(r.t, r.Do("SMEMBERS", key).AsStrSlice)
	case "zset":
		for f, v := range r.Scores(key) {
			lines = append(lines, fmt.Sprintf("%s=%.0f", f, v))
		}
	case "string":
		lines = []string{r.Text(key)}
	case "list":
		lines = must(r.t, r.Do("LRANGE", key, "0", "-1").AsStrSlice)
	default:
		r.t.Fatalf("key %s is a %s", key, kind)
	}
	if kind != "list" {
		slices.Sort(lines)
	}
	until := strconv.FormatInt(r.Int("PEXPIRETIME", key), 10)
	return kind + " until " + until + "\n" + strings.Join(lines, "\n")
}

// CheckRecords compares every key of the rig, with its type and content, with the golden file
// records.txt: processes of another release read them, too.
func (r *Rig) CheckRecords(t *testing.T) {
	t.Helper()
	var out strings.Builder
	dump := r.Dump()
	for _, key := range slices.Sorted(maps.Keys(dump)) {
		head, rest, _ := strings.Cut(dump[key], "\n")
		kind, until, _ := strings.Cut(head, " until ")
		if until != "-1" {
			kind += ", expires"
		}
		fmt.Fprintf(&out, "%s (%s)\n  %s\n", key, kind, strings.ReplaceAll(rest, "\n", "\n  "))
	}
	text := out.String()
	for what, differs := range map[string]string{"<ms>": `\b1\d{12}\b`, "generation=<hex>": `generation=[0-9a-f]{16}`} {
		text = regexp.MustCompile(differs).ReplaceAllString(text, what)
	}
	golden.Check(t, "records.txt", text)
}

// Unchanged runs f, and fails if any key differs afterwards.
func (r *Rig) Unchanged(what string, f func()) {
	r.t.Helper()
	before := r.Dump()
	f()
	if d := cmp.Diff(before, r.Dump()); d != "" {
		r.t.Errorf("%s changed Redis (-before +after):\n%s", what, d)
	}
}

func must[T any](t testing.TB, get func() (T, error)) T {
	t.Helper()
	v, err := get()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
