package source

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// rig is a list with sources on a Redis.
type rig struct {
	t       *testing.T
	ctx     context.Context
	redis   *redistest.Target
	control *namelist.Control
	store   *Store
	prefix  string

	// imports, if set, is what runs have instead of the manager.
	imports func(Imports) Imports

	mu      sync.Mutex
	audited []string // guarded by mu
}

const list = "vip"

func newRig(t *testing.T) *rig {
	t.Helper()
	redis := redistest.Shared(t)
	g := &rig{t: t, ctx: waittest.Context(t), redis: redis, prefix: redis.Prefix(t)}
	client, log := redis.RoleClient(t), zaptest.NewLogger(t)
	g.control = namelist.NewControl(client, g.prefix, redis.IsCluster(), log, nil)
	g.store = NewStore(g.control, client, log)
	_, err := g.control.Create(g.ctx, list, namelist.Spec{})
	g.check(err)
	return g
}

func (g *rig) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// replica starts a replica with these sources.
func (g *rig) replica(name string, sources map[string]Config) *Runner {
	g.t.Helper()
	log := zaptest.NewLogger(g.t)
	segments := version.NewSegments(
		version.SegmentsConfig{Prefix: g.prefix, Cluster: g.redis.IsCluster()}, g.redis.RoleClient(g.t), log, nil,
	)
	m := manage.New(manage.Config{
		Self: name, Dir: g.t.TempDir(), Pause: 20 * time.Millisecond,
		Server: func(context.Context, string) (*version.Segments, error) { return segments, nil },
	}, g.control, log)
	g.check(m.Start(g.ctx))
	for i, s := range sources {
		s.Timeout, s.MaxRows, s.MaxBytes = cmp.Or(s.Timeout, time.Minute), cmp.Or(s.MaxRows, 1000), 1<<20
		if s.Format == "" {
			s.Format = version.CSV
		}
		sources[i] = s
	}
	var imports Imports = m
	if g.imports != nil {
		imports = g.imports(m)
	}
	r := NewRunner(RunnerConfig{
		Replica: name, Sources: sources, Control: g.control, Store: g.store, Imports: imports, Log: log,
		Every: 20 * time.Millisecond,
		Audit: func(_ context.Context, source, list string, run *Run) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.audited = append(g.audited, fmt.Sprintf("%s %s %s", source, list, run.Result))
		},
	})
	g.check(r.Start(g.ctx))
	g.t.Cleanup(func() {
		g.check(r.Stop(context.Background()))
		g.check(m.Stop(context.Background()))
	})
	return r
}

// run has the source run, and returns how that ended.
func (g *rig) run() Run {
	g.t.Helper()
	return g.ended(g.begin())
}

// begin has the source run, and returns the runs before.
func (g *rig) begin() []Run {
	g.t.Helper()
	before, err := g.store.Get(g.ctx, list)
	g.check(err)
	_, err = g.store.Ask(g.ctx, list, "ann")
	g.check(err)
	return before.Runs
}

// ended waits for a run that is not among these.
func (g *rig) ended(before []Run) Run {
	g.t.Helper()
	var last Run
	waittest.Until(g.t, "a run to end", func() bool {
		a, err := g.store.Get(g.ctx, list)
		g.check(err)
		if len(a.Runs) == 0 || len(before) > 0 && a.Runs[0].ID == before[0].ID {
			return false
		}
		last = a.Runs[0]
		return true
	})
	return last
}

func (g *rig) want(run Run, result Result, why string) {
	g.t.Helper()
	if run.Result != result || !strings.Contains(run.Why, why) {
		g.t.Errorf("run %+v; want %s because of %q", run, result, why)
	}
}

// serves returns the number of the serving version and how many ids it has.
func (g *rig) serves() (number, count int64) {
	g.t.Helper()
	h, err := g.control.Head(g.ctx, list)
	g.check(err)
	if h.Serving == nil {
		return 0, 0
	}
	return h.Serving.Number, h.Serving.Count
}

// TestHTTP: a file is served, what has not changed makes no version, and what is no whole file
// leaves the list as it is.
func TestHTTP(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var answer http.HandlerFunc
	var mu sync.Mutex
	becomes := func(h http.HandlerFunc) { mu.Lock(); defer mu.Unlock(); answer = h }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := answer
		mu.Unlock()
		h(w, r)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	g.check(os.WriteFile(token, []byte("secret\n"), 0o600))
	g.replica("r1", map[string]Config{"crm": {Kind: KindHTTP, URL: server.URL + "/ids.csv", PasswordFile: token}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "crm"})
	g.check(err)

	file := func(lines int) string {
		var b strings.Builder
		for i := range lines {
			fmt.Fprintf(&b, "user-%d\n", i)
		}
		return b.String()
	}
	var asked http.Header
	becomes(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Clone()
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, file(100))
		_ = packed.Close()
	})
	run := g.run()
	g.want(run, Served, "")
	if run.Rows != 100 || run.Version != 1 || asked.Get("Authorization") != "Bearer secret" {
		t.Errorf("run %+v with authorization %q; want 100 rows as version 1, with the token", run, asked.Get("Authorization"))
	}
	g.want(g.run(), Unchanged, "")
	becomes(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(100)) }) // without an ETag
	g.want(g.run(), Unchanged, "")

	for name, bad := range map[string]struct {
		answer http.HandlerFunc
		result Result
		why    string
	}{
		"an error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, Failed, "502"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, file(100))
		}, Failed, "page"},
		"half a file": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			_, _ = io.WriteString(w, file(100))
			panic(http.ErrAbortHandler)
		}, Failed, "EOF"},
		"another host": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost:1/ids.csv", http.StatusFound)
		}, Failed, "redirects"},
		"no length": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\n"+file(100))
			_ = conn.Close()
		}, Failed, "neither"},
		"too many rows": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(1001)) }, Failed, "max_rows",
		},
		"ten times": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(1000)) }, Held, "100"},
		"few":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(10)) }, Held, "100"},
		"nothing":   {func(http.ResponseWriter, *http.Request) {}, Held, "empty"},
		"dirt": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(99)+" x\ty\n") }, Held, "rejected",
		},
	} {
		becomes(bad.answer)
		run := g.run()
		if run.Result != bad.result || !strings.Contains(run.Why, bad.why) {
			t.Errorf("%s: run %+v; want %s because of %q", name, run, bad.result, bad.why)
		}
		if number, count := g.serves(); number != 1 || count != 100 {
			t.Errorf("%s: the list serves version %d with %d ids; want version 1 with 100", name, number, count)
		}
		if strings.Contains(run.Why, "ids.csv") {
			t.Errorf("%s: why is %q; want no address", name, run.Why)
		}
	}
	becomes(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, file(120)) })
	g.want(g.run(), Served, "")
	if _, count := g.serves(); count != 120 {
		t.Errorf("the list serves %d ids; want 120", count)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if first, last := g.audited[0], g.audited[len(g.audited)-1]; first != "crm vip served" || first != last ||
		len(g.audited) != 12 {
		t.Errorf("audited %q; want the first, the ten bad ones, and the last", g.audited)
	}
}

// TestRedisAndFile: a set, a hash and a zset of another Redis, and a file, which may be compressed.
func TestRedisAndFile(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	key := g.prefix + ":crm"
	do := func(args ...string) {
		t.Helper()
		client := g.redis.Client(t)
		g.check(client.Do(g.ctx, client.B().Arbitrary(args[0]).Args(args[1:]...).Build()).Error())
	}
	path := filepath.Join(t.TempDir(), "ids.txt")
	g.replica("r1", map[string]Config{
		"redis":   {Kind: KindRedis, URL: g.redis.AdminURL(), Key: key},
		"expiry":  {Kind: KindRedis, URL: g.redis.AdminURL(), Key: key, Expiry: true},
		"file":    {Kind: KindFile, Path: path, Format: version.TXT},
		"outside": {Kind: KindFile, Path: filepath.Join(filepath.Dir(path), "link"), Format: version.TXT},
	})
	set := func(source string) {
		t.Helper()
		_, err := g.store.Set(g.ctx, list, Assignment{Source: source})
		g.check(err)
	}
	set("redis")
	g.want(g.run(), Failed, "there is no key")
	do("SADD", key, "a", "b", `c,"d"`)
	g.want(g.run(), Served, "")
	if _, count := g.serves(); count != 3 {
		t.Errorf("the list serves %d ids of the set; want 3", count)
	}
	do("SADD", key, "two\nlines")
	g.want(g.run(), Held, "1 line was rejected")
	do("DEL", key)
	do("HSET", key, "a", "x", "b", "y", "c", "")
	g.want(g.run(), Served, "")
	do("DEL", key)
	do("ZADD", key, "4102444800", "a", "0", "b", "inf", "c", "4102444800000", "d")
	set("expiry")
	g.want(g.run(), Served, "")
	if _, count := g.serves(); count != 4 {
		t.Errorf("the list serves %d ids of the zset; want 4", count)
	}

	set("file")
	g.want(g.run(), Failed, "no such file")
	g.check(os.WriteFile(path, []byte("a\nb\nc\nd\ne"), 0o600))
	run := g.run()
	g.want(run, Served, "")
	if _, count := g.serves(); count != 5 || run.Rows != 5 {
		t.Errorf("the list serves %d ids of %d rows; want 5", count, run.Rows)
	}
	g.want(g.run(), Unchanged, "")
	var packed strings.Builder
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, "e\nd\nc\nb\na\n")
	_ = w.Close()
	g.check(os.WriteFile(path, []byte(packed.String()), 0o600))
	g.want(g.run(), Unchanged, "") // the same ids in another order
	secret := filepath.Join(t.TempDir(), "secret")
	g.check(os.WriteFile(secret, []byte("s\n"), 0o600))
	g.check(os.Symlink(secret, filepath.Join(filepath.Dir(path), "link")))
	set("outside")
	g.want(g.run(), Failed, "escapes")
}

// approved are imports whose switches wait for approval.
type approved struct {
	Imports

	control *namelist.Control
	asked   atomic.Int64
	newest  atomic.Value // the id of the newest request
}

// held is the error of a switch that waits.
type held struct{ id string }

func (h held) Error() string     { return "request " + h.id }
func (h held) Unwrap() error     { return manage.ErrHeld }
func (h held) RequestID() string { return h.id }

func (a *approved) Switch(ctx context.Context, list string, q manage.SwitchRequest) (namelist.Operation, error) {
	mark, err := a.control.TargetMark(ctx, namelist.SwitchList, list)
	if err != nil {
		return namelist.Operation{}, err
	}
	r, err := a.control.OpenRequest(ctx, namelist.ChangeRequest{
		Kind: namelist.SwitchList, Target: list, Tenant: namelist.SourceTenant, Author: q.By.Author, Mark: mark,
		State: namelist.RequestPending, Change: fmt.Appendf(nil, "%d", q.Number),
	})
	if err != nil {
		return namelist.Operation{}, err
	}
	a.asked.Add(1)
	a.newest.Store(r.ID)
	return namelist.Operation{}, held{r.ID}
}

// scheduled has the source run as if its time had come.
func (g *rig) scheduled() Run {
	g.t.Helper()
	a, err := g.store.change(g.ctx, list, func(a *Assignment, nowMS int64) error {
		a.NextMS = nowMS
		return nil
	})
	g.check(err)
	return g.ended(a.Runs)
}

// request writes a field of a request into Redis.
func (g *rig) request(id, field string, value any) {
	g.t.Helper()
	client := g.redis.Client(g.t)
	key := g.control.Layout().Key("lists:requests", namelist.SourceTenant)
	text, err := client.Do(g.ctx, client.B().Hget().Key(key).Field(id).Build()).ToString()
	g.check(err)
	var all map[string]any
	g.check(json.Unmarshal([]byte(text), &all))
	all[field] = value
	changed, err := json.Marshal(all)
	g.check(err)
	g.check(client.Do(g.ctx, client.B().Hset().Key(key).FieldValue().FieldValue(id, string(changed)).Build()).Error())
}

// TestWaitsForApproval: while the switch of a run waits for approval, the same lines make no other
// version and no other request, and leave the list as it is. Other lines do. A run asks again after
// a request has lapsed, and after a refusal only by hand.
func TestWaitsForApproval(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := &approved{control: g.control}
	g.imports = func(m Imports) Imports { a.Imports = m; return a }
	path := filepath.Join(t.TempDir(), "ids.txt")
	g.check(os.WriteFile(path, []byte("a\nb\n"), 0o600))
	g.replica("r1", map[string]Config{"file": {Kind: KindFile, Path: path, Format: version.TXT}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "file"})
	g.check(err)
	g.want(g.run(), Held, "request ")
	before, err := g.control.Head(g.ctx, list)
	g.check(err)
	for range 2 {
		run := g.run()
		g.want(run, Held, a.newest.Load().(string))
		if run.Version != 1 {
			t.Errorf("the run is held with version %d; want 1", run.Version)
		}
	}
	after, err := g.control.Head(g.ctx, list)
	g.check(err)
	if n := a.asked.Load(); n != 1 || after.Revision != before.Revision {
		t.Errorf("%d requests, revision %d; want 1 and %d", n, after.Revision, before.Revision)
	}

	asked := func(what string, want int64) {
		t.Helper()
		if n := a.asked.Load(); n != want {
			t.Errorf("%d requests were made after %s; want %d", n, what, want)
		}
	}
	g.request(a.newest.Load().(string), "until_ms", 1)
	g.want(g.scheduled(), Held, "request ")
	asked("one has lapsed", 2)
	_, err = g.control.CloseRequest(g.ctx, a.newest.Load().(string), namelist.By{Author: "ada"}, true)
	g.check(err)
	for range 2 {
		g.want(g.scheduled(), Held, "is rejected; `schedctl lists source run vip` asks again")
	}
	asked("a refusal", 2)
	g.want(g.run(), Held, "request ")
	asked("a run by hand", 3)
	g.want(g.scheduled(), Held, a.newest.Load().(string))
	asked("another run", 3)

	g.check(os.WriteFile(path, []byte("a\nc\n"), 0o600))
	newest := g.scheduled()
	g.want(newest, Held, "request ")
	asked("other lines", 4)
	op, err := a.Imports.Switch(g.ctx, list, manage.SwitchRequest{Number: newest.Version, Serving: 0})
	g.check(err)
	waittest.Until(t, "the newest version to serve", func() bool {
		number, _ := g.serves()
		return number == op.Number
	})
	g.want(g.run(), Unchanged, "")
}

// TestTakeOver: a run whose replica died is recorded as lost, and made by another one. A replica
// without the source makes none.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	path := filepath.Join(t.TempDir(), "ids.csv")
	g.check(os.WriteFile(path, []byte("a\nb\n"), 0o600))
	g.replica("other", map[string]Config{"another": {Kind: KindFile, Path: path}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "files", Cron: "@every 1h"})
	g.check(err)
	_, err = g.store.change(g.ctx, list, func(a *Assignment, nowMS int64) error {
		a.Running = &Run{ID: "1", Replica: "dead", AtMS: nowMS - 60_000, LeaseMS: nowMS - 1}
		return nil
	})
	g.check(err)
	g.replica("r1", map[string]Config{"files": {Kind: KindFile, Path: path}})
	waittest.Until(t, "the list to be served", func() bool { number, _ := g.serves(); return number == 1 })
	run := g.ended([]Run{{ID: "1"}})
	g.want(run, Served, "")
	a, err := g.store.Get(g.ctx, list)
	g.check(err)
	if run.Replica != "r1" || len(a.Runs) != 2 || a.Runs[1].Result != Lost || a.Runs[1].Replica != "dead" {
		t.Errorf("runs %+v; want one of r1, and before it one that dead lost", a.Runs)
	}
	if a.NextMS <= run.AtMS || a.NextMS > run.AtMS+2*time.Hour.Milliseconds() {
		t.Errorf("the next run is at %d; want an hour after %d", a.NextMS, run.AtMS)
	}

	// A run that is under way is not begun again, and one whose lease is taken away changes nothing.
	_, err = g.store.change(g.ctx, list, func(a *Assignment, nowMS int64) error {
		a.Running = &Run{ID: "2", Replica: "slow", AtMS: nowMS, LeaseMS: nowMS + time.Hour.Milliseconds()}
		return nil
	})
	g.check(err)
	if _, err := g.store.Ask(g.ctx, list, "ann"); freeslot.CodeOf(err) != freeslot.CodeConflict {
		t.Errorf("asked while it runs: %v; want a conflict", err)
	}
	g.check(g.store.Unset(g.ctx, list))
	if _, err := g.store.Get(g.ctx, list); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("source of the list: %v; want none", err)
	}
}

// TestStore: bad input is refused with its field, and a list that is gone takes its source along.
func TestStore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for field, a := range map[string]Assignment{
		"source":    {Source: "two words"},
		"cron":      {Source: "s", Cron: "never"},
		"time_zone": {Source: "s", Cron: "@daily", TimeZone: "Mars"},
	} {
		_, err := g.store.Set(g.ctx, list, a)
		if e, ok := errors.AsType[*freeslot.Error](err); !ok || e.Field != field {
			t.Errorf("set %+v: %v; want a refusal of %s", a, err, field)
		}
	}
	if _, err := g.store.Set(g.ctx, "none", Assignment{Source: "s"}); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("set for a list that is not there: %v; want not_found", err)
	}
	if _, err := g.store.Ask(g.ctx, list, "ann"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
		t.Errorf("run of a list without a source: %v; want not_found", err)
	}
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "s", Cron: "@every 1s"})
	g.check(err)
	lists, all, err := g.store.All(g.ctx)
	g.check(err)
	if len(lists) != 1 || lists[0] != list || all[0].Source != "s" || all[0].NextMS == 0 {
		t.Errorf("all: %v %+v; want the list with source s and a next run", lists, all)
	}
	_, err = g.control.Delete(g.ctx, list, namelist.AnyVersion, true, namelist.By{})
	g.check(err)
	g.replica("r1", map[string]Config{"s": {Kind: KindFile, Path: "/nowhere"}})
	waittest.Until(t, "the source to be forgotten", func() bool {
		lists, _, err := g.store.All(g.ctx)
		g.check(err)
		return len(lists) == 0
	})
}

// TestReplicaStops: while a replica runs a source no other one does; when it stops in the middle,
// another one runs it once the lease is over, and the list has what that has read.
func TestReplicaStops(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var running, most, calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		_, _ = io.WriteString(w, "a\nb\n")
		w.(http.Flusher).Flush()
		if calls.Add(1) == 1 {
			<-r.Context().Done() // the reader is gone
			return
		}
		_, _ = io.WriteString(w, "c\n")
	}))
	defer server.Close()
	crm := func() map[string]Config { return map[string]Config{"crm": {Kind: KindHTTP, URL: server.URL}} }
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "crm"})
	g.check(err)
	first := g.replica("r1", crm())
	before := g.begin()
	waittest.Until(t, "the run to read", func() bool { return running.Load() == 1 })
	g.replica("r2", crm())
	g.check(first.Stop(g.ctx))
	a, err := g.store.Get(g.ctx, list)
	g.check(err)
	if a.Running == nil || a.Running.Replica != "r1" || calls.Load() != 1 {
		t.Fatalf("%+v after %d calls; want the lease of r1, which made one call", a.Running, calls.Load())
	}
	_, err = g.store.change(g.ctx, list, func(a *Assignment, nowMS int64) error {
		a.Running.LeaseMS = nowMS - 1 // as if 30 s had passed
		return nil
	})
	g.check(err)
	run := g.ended([]Run{{ID: a.Running.ID}})
	if len(before) > 0 {
		t.Errorf("runs before: %+v; want none", before)
	}
	g.want(run, Served, "")
	if number, count := g.serves(); run.Replica != "r2" || number != 1 || count != 3 || most.Load() != 1 {
		t.Errorf("run %+v; version %d with %d ids serves, %d runs at a time; want version 1 of r2 with 3 ids, one at a time",
			run, number, count, most.Load())
	}
}

// TestServerKilled: a server that dies in the middle of an answer changes nothing, and a list whose
// source is taken away during a run stays as it is.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var rest atomic.Pointer[chan string] // of the answer; nil: it is whole
	begun := make(chan struct{}, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a\nb\n")
		w.(http.Flusher).Flush()
		if ch := rest.Load(); ch != nil {
			begun <- struct{}{}
			select {
			case text := <-*ch:
				_, _ = io.WriteString(w, text)
			case <-r.Context().Done():
			}
		}
	})
	server := httptest.NewServer(handler)
	addr := server.Listener.Addr().String()
	g.replica("r1", map[string]Config{"crm": {Kind: KindHTTP, URL: server.URL + "/ids"}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "crm"})
	g.check(err)
	g.want(g.run(), Served, "")

	more := make(chan string)
	rest.Store(&more)
	before := g.begin()
	waittest.Receive(t, "the middle of the answer", begun)
	server.CloseClientConnections()
	server.Close()
	run := g.ended(before)
	g.want(run, Failed, "EOF")
	away := g.run()
	g.want(away, Failed, "refused")
	if why := run.Why + away.Why; strings.Contains(why, "/ids") {
		t.Errorf("why: %s; want no address of the file", why)
	}
	if number, count := g.serves(); number != 1 || count != 2 {
		t.Errorf("version %d with %d ids serves; want version 1 with 2", number, count)
	}

	listener, err := net.Listen("tcp", addr)
	g.check(err)
	again := httptest.NewUnstartedServer(handler)
	_ = again.Listener.Close()
	again.Listener = listener
	again.Start()
	defer again.Close()
	rest.Store(nil)
	g.want(g.run(), Unchanged, "")
	rest.Store(&more)
	g.begin()
	waittest.Receive(t, "the middle of the answer", begun)
	g.check(g.store.Unset(g.ctx, list))
	more <- "c\n"
	waittest.Until(t, "the run to end", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.audited) > 0 && g.audited[len(g.audited)-1] == "crm vip failed" && len(g.audited) == 3
	}, func() any { g.mu.Lock(); defer g.mu.Unlock(); return len(g.audited) })
	if number, count := g.serves(); number != 1 || count != 2 {
		t.Errorf("version %d with %d ids serves after the source was taken away; want version 1 with 2", number, count)
	}
}

// TestEditsAreReplaced: a run whose lines are the serving version's takes back the edits since that
// was built, also the first ones that the list ever had, and changes nothing without any.
func TestEditsAreReplaced(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	path := filepath.Join(t.TempDir(), "ids.csv")
	g.check(os.WriteFile(path, []byte("a\nb\n"), 0o600))
	g.replica("r1", map[string]Config{"files": {Kind: KindFile, Path: path}})
	_, err := g.store.Set(g.ctx, list, Assignment{Source: "files"})
	g.check(err)
	g.want(g.run(), Served, "")
	for range 2 {
		_, err = g.control.Edit(g.ctx, list, namelist.EditRequest{
			Changes: []namelist.Change{{Entry: namelist.Entry{ID: "c"}}},
		})
		g.check(err)
		before, _ := g.serves()
		g.want(g.run(), Served, "")
		h, err := g.control.Head(g.ctx, list)
		g.check(err)
		if h.Serving.Number == before || h.Edited != h.Serving.Edited {
			t.Errorf("version %d serves with %d edited entries of %d; want a new one without edits", h.Serving.Number, h.Serving.Edited, h.Edited)
		}
		g.want(g.run(), Unchanged, "")
		g.check(os.WriteFile(path, []byte("b\na\n"), 0o600)) // the same ids in another order
		g.want(g.run(), Unchanged, "")
		g.check(os.WriteFile(path, []byte("a\nb\n"), 0o600))
	}
}
