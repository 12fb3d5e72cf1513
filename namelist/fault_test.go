package namelist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// unanswered checks an id that must be unknown by the client's own deadline: the context has none.
func unanswered(t *testing.T, l *List, id string, reason Reason) {
	t.Helper()
	want(t, l.Check(context.Background(), id), Unknown, SourceNone, reason)
}

// strangersOf are ids that the filter of a list does not have.
func strangersOf(l *List, n int) (out []string) {
	for i := 0; len(out) < n; i++ {
		if id := fmt.Sprint("stranger", i); l.Peek(id).Source == SourceFilter {
			out = append(out, id)
		}
	}
	return out
}

func exact(t *testing.T, l *List, ids []string, verdict Verdict) {
	t.Helper()
	for _, a := range l.CheckAll(bounded(t), ids) {
		if a.Verdict != verdict {
			t.Fatalf("%+v, want %s", a, verdict)
		}
	}
}

// A list server that is frozen, killed and empty again: its list is unknown where memory cannot
// decide, and the other list is exact.
func TestListServerAway(t *testing.T) {
	t.Parallel()
	bothWays(t, testListServerAway)
}

func testListServerAway(t *testing.T, by func(*rig) *rig) {
	t.Helper()
	data := redistest.New(t)
	r := by(newRig(t, redistest.Shared(t)))
	members := randomIDs(1, 100)
	r.create("other", lists.Spec{})
	r.publish("other", entriesOf(members...))
	r.apart(data.Target)
	r.create("vip", lists.Spec{})
	r.publish("vip", entriesOf(members...))
	r.edit("vip", add("edited"), drop(members[9]))
	c := r.open(func(cfg *Config) { cfg.Deadline = DefaultDeadline })
	patient := r.open()
	l, other, slow := c.List("vip"), patient.List("other"), patient.List("vip")
	for _, l := range []*List{l, other, slow} {
		r.ready(l)
	}
	exact(t, slow, members[:9], Yes)
	// On a busy machine a check can take longer than its deadline.
	r.must(redistest.Await(func(ctx context.Context) bool { return l.Check(ctx, members[0]).Verdict == Yes }))
	strangers := strangersOf(l, 100)

	memory := func() {
		t.Helper()
		want(t, l.Check(bounded(t), members[0]), Yes, SourceCache, ReasonNone)
		want(t, l.Check(bounded(t), "edited"), Yes, SourceEdits, ReasonNone)
		want(t, l.Check(bounded(t), members[9]), No, SourceEdits, ReasonNone)
		exact(t, l, strangers, No)
		exact(t, other, members, Yes)
	}
	data.Pause()
	unanswered(t, l, members[1], ReasonTimeout)
	memory()
	data.Resume()
	want(t, slow.Check(bounded(t), members[10]), Yes, SourceRedis, ReasonNone)
	data.Kill()
	unanswered(t, l, members[2], ReasonTimeout)
	memory()
	data.Restart() // without data
	r.must(redistest.Await(func(context.Context) bool { return slow.Check(bounded(t), members[11]).Reason == ReasonSegment }))
	memory()
	for _, a := range slow.CheckAll(bounded(t), members[12:]) {
		want(t, a, Unknown, SourceNone, ReasonSegment)
	}
}

// A list server gets another address: clients that are connected to the old one find it.
func TestListServerMoves(t *testing.T) {
	t.Parallel()
	before, after := redistest.New(t), redistest.New(t)
	r := newRig(t, redistest.Shared(t)).apart(before.Target)
	r.create("vip", lists.Spec{Settings: lists.Settings{Filter: filter.None}})
	members := randomIDs(1, 40)
	v := r.publish("vip", entriesOf(members...))
	l := r.open(func(cfg *Config) { cfg.Deadline = DefaultDeadline }).List("vip")
	r.ready(l)
	r.must(redistest.Await(func(context.Context) bool { return l.Check(bounded(t), members[0]).Verdict == Yes }))
	for i := range v.Segments {
		key := lists.SegmentKey(r.prefix, "vip", v.Number, i)
		dump, err := r.data.Do(bounded(t), r.data.B().Dump().Key(key).Build()).ToString()
		r.must(err)
		to := after.Client(t)
		r.must(to.Do(bounded(t), to.B().Restore().Key(key).Ttl(0).SerializedValue(dump).Build()).Error())
	}
	r.must(r.PutServer(bounded(t), lists.Server{Name: r.server, Addresses: []string{after.URL()}}))
	before.Kill()
	r.must(redistest.Await(func(context.Context) bool { return l.Check(bounded(t), members[1]).Verdict == Yes }))
	for _, id := range members {
		r.must(redistest.Await(func(context.Context) bool { return l.Check(bounded(t), id).Verdict == Yes }))
	}
}

// A segment that is missing, of another build, or of another form says nothing; the others are
// exact.
func TestSeals(t *testing.T) {
	onAll(t, func(t *testing.T, r *rig) {
		r.create("vip", lists.Spec{Settings: lists.Settings{Filter: filter.None}})
		members := randomIDs(1, 40)
		v := r.publish("vip", entriesOf(members...))
		head, err := r.Head(bounded(t), "vip")
		r.must(err)
		segment := func(id string) uint32 { return form.Segment(form.Sum(head.Seed, id), v.Segments) }
		l := r.open().List("vip")
		r.ready(l)
		bad := segment(members[0])
		key := lists.SegmentKey(r.prefix, "vip", v.Number, bad)
		b := r.data.B()
		for _, step := range []struct {
			reason Reason
			spoil  func() error
		}{
			{ReasonMoved, func() error {
				return r.data.Do(bounded(t), b.Hset().Key(key).FieldValue().FieldValue("", "0123456789abcdef0123456789abcdef 8").Build()).Error()
			}},
			{ReasonSegment, func() error { return r.data.Do(bounded(t), b.Hdel().Key(key).Field("").Build()).Error() }},
			{ReasonFormat, func() error {
				return r.data.Do(bounded(t), b.Hset().Key(key).FieldValue().FieldValue("", v.Build+" 8").FieldValue(members[0], "soon").Build()).Error()
			}},
			{ReasonSegment, func() error { return r.data.Do(bounded(t), b.Del().Key(key).Build()).Error() }},
		} {
			r.must(step.spoil())
			want(t, l.Check(bounded(t), members[0]), Unknown, SourceNone, step.reason)
		}
		for i, a := range l.CheckAll(bounded(t), append(members, randomIDs(2, 200)...)) {
			switch id := append(members, randomIDs(2, 200)...)[i]; {
			case segment(id) == bad:
				want(t, a, Unknown, SourceNone, ReasonSegment)
			case i < len(members) && a.Verdict != Yes, i >= len(members) && a.Verdict != No:
				t.Errorf("%s: %+v", id, a)
			}
		}
	})
}

// Without the control server what is loaded goes on, and is stale. A control server that lost its
// data is none.
func TestControlAway(t *testing.T) {
	t.Parallel()
	bothWays(t, testControlAway)
}

func testControlAway(t *testing.T, by func(*rig) *rig) {
	t.Helper()
	control := redistest.New(t)
	r := by(newRig(t, control.Target).apart(redistest.Shared(t)))
	members := randomIDs(1, 100)
	r.create("vip", lists.Spec{})
	r.publish("vip", entriesOf(members...))
	revision := r.edit("vip", add("edited"))
	l := r.open().List("vip")
	r.ready(l)
	strangers := strangersOf(l, 100)
	loaded := func() {
		t.Helper()
		exact(t, l, members, Yes)
		exact(t, l, strangers, No)
		if a := l.Check(bounded(t), "edited"); !a.Stale || a.Age() < staleAfter || a.Revision != revision || a.Verdict != Yes {
			t.Errorf("answer: %+v", a)
		}
	}
	control.Kill()
	r.await(l, "stale answers", func(s Status) bool { return s.Stale })
	loaded()
	control.Restart()
	r.must(redistest.Await(func(context.Context) bool { return l.client.failure() == nil }))
	loaded()
	r.server = ""
	r.create("vip", lists.Spec{}) // another life
	r.await(l, "the new list", func(s Status) bool { return s.Reason == ReasonDraft && !s.Stale })
}

// A process that starts while Redis is away answers from its folder.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	bothWays(t, testSnapshot)
}

func testSnapshot(t *testing.T, by func(*rig) *rig) {
	t.Helper()
	control := redistest.New(t)
	r := by(newRig(t, control.Target))
	members := randomIDs(1, 100)
	later := time.Now().Add(time.Hour).UnixMilli()
	r.create("vip", lists.Spec{})
	v := r.publish("vip", entriesOf(members...))
	revision := r.edit("vip", lists.Change{Entry: lists.Entry{ID: "edited", ExpiresMS: later}}, drop(members[0]))
	dir := t.TempDir()
	in := func(cfg *Config) { cfg.SnapshotDir, cfg.Deadline = dir, DefaultDeadline }
	c := r.open(in)
	r.ready(c.List("vip"))
	r.must(c.Close(bounded(t)))
	control.Kill()

	l := r.open(in).List("vip")
	r.await(l, "the snapshot", func(s Status) bool { return s.Version == v.Number })
	if s := l.Status(); !s.Stale || s.Revision != revision || s.Loaded != 2 {
		t.Errorf("status: %+v", s)
	}
	exact(t, l, strangersOf(l, 100), No)
	a := l.Check(bounded(t), "edited")
	want(t, a, Yes, SourceEdits, ReasonNone)
	if !a.Stale || a.Age() < 0 || a.ExpiresAt.UnixMilli() != later {
		t.Errorf("answer: %+v", a)
	}
	want(t, l.Check(bounded(t), members[0]), No, SourceEdits, ReasonNone)
	unanswered(t, l, members[1], ReasonTimeout)

	files, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
	r.must(err)
	if len(files) != 1 {
		t.Fatalf("files: %v", files)
	}
	data, err := os.ReadFile(files[0])
	r.must(err)
	if _, err := decodeSnapshot(data, "vip"); err != nil {
		t.Error(err)
	}
	if _, err := decodeSnapshot(data, "other"); err == nil {
		t.Error("a snapshot of another list was read")
	}
	for i := range data {
		data[i] ^= 1
		if _, err := decodeSnapshot(data, "vip"); err == nil {
			t.Fatalf("a snapshot with a wrong byte %d was read", i)
		}
		data[i] ^= 1
		if _, err := decodeSnapshot(data[:i], "vip"); err == nil {
			t.Fatalf("a snapshot of %d bytes was read", i)
		}
	}
}

// A list that is held whole answers all ids from the folder, and is ready.
func TestSnapshotOfAWholeList(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, by func(*rig) *rig) {
		control := redistest.New(t)
		r := by(newRig(t, control.Target))
		members := randomIDs(1, 100)
		later := time.Now().Add(time.Hour).UnixMilli()
		entries := entriesOf(members...)
		entries["ends"] = later
		r.create("vip", lists.Spec{Settings: lists.Settings{Whole: true}})
		r.create("none", lists.Spec{Settings: lists.Settings{Whole: true}})
		v := r.publish("vip", entries)
		r.publish("none", nil)
		r.edit("vip", add("edited"), drop(members[0]))
		dir := t.TempDir()
		in := func(cfg *Config) { cfg.SnapshotDir, cfg.Deadline = dir, DefaultDeadline }
		c := r.open(in)
		r.ready(c.List("vip"))
		r.ready(c.List("none"))
		r.must(c.Close(bounded(t)))
		control.Kill()

		c = r.open(in)
		l := c.List("vip")
		r.ready(l)
		r.ready(c.List("none"))
		if s := l.Status(); !s.Stale || s.Version != v.Number {
			t.Errorf("status: %+v, expected stale version %d", s, v.Number)
		}
		for _, id := range members[1:] {
			want(t, l.Check(bounded(t), id), Yes, SourceWhole, ReasonNone)
		}
		want(t, l.Check(bounded(t), members[0]), No, SourceEdits, ReasonNone)
		want(t, l.Check(bounded(t), "edited"), Yes, SourceEdits, ReasonNone)
		want(t, l.Check(bounded(t), "stranger"), No, SourceWhole, ReasonNone)
		want(t, c.List("none").Check(bounded(t), "stranger"), No, SourceWhole, ReasonNone)
		if a := l.Check(bounded(t), "ends"); a.Verdict != Yes || a.ExpiresAt.UnixMilli() != later {
			t.Errorf("answer: %+v, expected yes until %d", a, later)
		}
	})
}

// A folder in which nothing can be written is refused at once.
func TestSnapshotDirThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/snapshots"} {
		_, err := Open(Config{RedisURL: "redis://127.0.0.1:1", SnapshotDir: dir})
		if e, ok := errors.AsType[*freeslot.Error](err); !ok || e.Field != "snapshot_dir" || !strings.Contains(e.Message, dir) {
			t.Errorf("%v, expected an error that names snapshot_dir and %s", err, dir)
		}
	}
	made := filepath.Join(t.TempDir(), "a", "b")
	c, err := Open(Config{RedisURL: "redis://127.0.0.1:1", SnapshotDir: made})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(made); err != nil || len(left) != 0 {
		t.Errorf("%v, %v, expected an empty folder", left, err)
	}
	if err := c.Close(bounded(t)); err != nil {
		t.Error(err)
	}
}

// fake is a source of one list that answers as a test says.
type fake struct {
	mu      sync.Mutex
	head    lists.Head
	answers func(v *lists.Version, questions []question) []found
	asked   int // guarded by mu
}

func (f *fake) set(version int64, build string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head.Revision++
	f.head.Serving = &lists.Version{Number: version, Build: build, Segments: 1}
}

func (f *fake) follow(string, func(lists.Event)) func() { return func() {} }
func (f *fake) poll(_ context.Context, names []string, _ bool) ([]lists.Mark, string, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []lists.Mark{{Revision: f.head.Revision, Birth: f.head.Birth}}[:len(names)], "1", time.Now(), nil
}

func (*fake) chain(context.Context, string) (lists.ChainRecord, error) {
	return lists.ChainRecord{}, errors.New("no chains")
}

func (f *fake) delta(context.Context, string, int64) (lists.Delta, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.head
	h.At = time.Now()
	return lists.Delta{Head: h, History: "1"}, nil
}

func (f *fake) block(context.Context, string, *lists.Version, uint32) ([]byte, error) {
	return nil, filter.ErrFormat
}

func (f *fake) whole(context.Context, string, *lists.Version) (map[string]int64, error) {
	return nil, context.DeadlineExceeded
}

func (f *fake) ask(_ context.Context, _ string, v *lists.Version, questions []question) []found {
	f.mu.Lock()
	f.asked += len(questions)
	f.mu.Unlock()
	return f.answers(v, questions)
}
func (f *fake) report(context.Context, string, map[string]lists.ClientReport) error { return nil }
func (f *fake) close()                                                              {}

const firstBuild, secondBuild = "00000000000000000000000000000001", "00000000000000000000000000000002"

func openFake(t *testing.T, f *fake) *List {
	t.Helper()
	f.head = lists.Head{Name: "vip", Birth: "1", Form: form.Exact, State: lists.Active}
	f.set(1, firstBuild)
	c := newClient(Config{Deadline: time.Minute}.withDefaults())
	c.start(func(context.Context) (source, error) { return f, nil })
	t.Cleanup(func() {
		if err := c.Close(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	l := c.List("vip")
	if err := l.WaitReady(bounded(t)); err != nil {
		t.Fatal(err)
	}
	return l
}

// Equal checks share a call; beyond the limit checks are unknown at once.
func TestOverload(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := &fake{answers: func(_ *lists.Version, q []question) []found {
		<-release
		return make([]found, len(q))
	}}
	l := openFake(t, f)
	const all = askLimit + 100
	answers := make(chan Answer, 2*all)
	var checks sync.WaitGroup
	for i := range 2 * all {
		checks.Go(func() { answers <- l.Check(bounded(t), fmt.Sprint("id", i%all)) })
	}
	over := 0
	for range 2 * 100 { // the others wait
		if a := <-answers; a.Reason == ReasonOverloaded {
			over++
		}
	}
	close(release)
	checks.Wait()
	close(answers)
	for a := range answers {
		if a.Verdict != No {
			t.Fatalf("%+v; want a.Verdict == No", a)
		}
	}
	// A check that missed the cache just before the answer came asks once more.
	if f.asked < askLimit || f.asked > askLimit+100 || over != 200 {
		t.Errorf("%d ids were asked, %d were refused", f.asked, over)
	}
}

// A process that slept over a switch finds its version gone, reads the head, and answers from the
// new version.
func TestSlept(t *testing.T) {
	t.Parallel()
	f := &fake{answers: func(v *lists.Version, _ []question) []found {
		if v.Build == firstBuild {
			return []found{{why: ReasonSegment}}
		}
		return []found{{entry: entry{has: true}}}
	}}
	l := openFake(t, f)
	want(t, l.Check(bounded(t), "a"), Unknown, SourceNone, ReasonSegment)
	old := *l.snapshot.Load()
	f.set(2, secondBuild)
	r := &rig{t: t}
	r.await(l, "the switch", func(s Status) bool { return s.Version == 2 })
	old.asOf, old.replaced = old.asOf.Add(-time.Hour), make(chan struct{})
	l.snapshot.Store(&old) // as if the process had slept
	if a := l.Check(bounded(t), "a"); a.Verdict != Yes || a.Version != 2 {
		t.Errorf("%+v; want a.Verdict == Yes, a.Version == 2", a)
	}
}

// Blocks of a format that this release does not know are not used.
func TestUnknownFormat(t *testing.T) {
	t.Parallel()
	f := &fake{answers: func(_ *lists.Version, q []question) []found { return make([]found, len(q)) }}
	l := openFake(t, f)
	f.mu.Lock()
	f.head.Revision++
	v := *f.head.Serving
	v.Number, v.Build, v.Filter, v.FilterBytes = 2, secondBuild, filter.Fuse, 100
	f.head.Serving = &v
	f.mu.Unlock()
	r := &rig{t: t}
	r.await(l, "the version", func(s Status) bool { return s.Version == 2 })
	r.ready(l)
	want(t, l.Check(bounded(t), "a"), No, SourceRedis, ReasonNone)
	f.mu.Lock()
	f.head.Revision++
	f.head.Form = "later"
	f.mu.Unlock()
	r.await(l, "the form", func(s Status) bool { return s.Reason == ReasonFormat })
	want(t, l.Check(bounded(t), "a"), Unknown, SourceNone, ReasonFormat)
}

// Blocks that do not fit are left out, and their ids asked in Redis.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	v := &view{edits: noEdits}
	v.serving = newLoaded(&lists.Version{Filter: filter.Fuse, BlockBits: 2, FilterBytes: 4000})
	fits := func(bytes int64) bool { return v.bytes()+bytes <= 2500 }
	for range 2 {
		l, index, due := v.wantBlock(0, fits)
		if !due || l.complete(fits) {
			t.Fatalf("due: %t", due)
		}
		v.block(l, index, &filter.Block{}, 0)
		l.bytes = int64(l.have) * l.need(index)
	}
	if _, _, due := v.wantBlock(0, fits); due || !v.serving.complete(fits) {
		t.Error("a third block is wanted")
	}
	v.notLoaded(v.serving, 3, context.DeadlineExceeded, time.Second)
	if _, _, due := v.wantBlock(time.Second, func(int64) bool { return true }); due {
		t.Error("a block is asked again at once")
	}
}
