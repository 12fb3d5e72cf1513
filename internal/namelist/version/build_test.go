package version

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// oracle makes random versions, and knows what they must have.
type oracle struct{ *rand.Rand }

func (o oracle) id() string {
	switch o.IntN(20) {
	case 0:
		return strings.Repeat("长", 1+o.IntN(85)) + fmt.Sprint(o.IntN(3000))[:1]
	case 1:
		return fmt.Sprintf(`with,"%d"`, o.IntN(3000))
	default:
		return fmt.Sprint("user-", o.IntN(3000))
	}
}

func (o oracle) expires() int64 {
	if o.IntN(3) > 0 {
		return 0
	}
	return FirstMS + o.Int64N(FirstMS)
}

// file is a file of n lines. It applies them to entries.
func (o oracle) file(n int, remove bool, entries map[string]int64) (content string, duplicates int64) {
	var b strings.Builder
	seen := make(map[string]bool)
	for range n {
		id, expires := o.id(), o.expires()
		if seen[id] {
			duplicates++
		}
		seen[id] = true
		if remove {
			delete(entries, id)
		} else {
			entries[id] = expires
		}
		b.WriteString(line(`"`+strings.ReplaceAll(id, `"`, `""`)+`"`, expires))
	}
	return b.String(), duplicates
}

// Versions built from random files, edits and other versions have what a map has.
func TestBuild(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		o := oracle{rand.New(rand.NewPCG(rand.Uint64(), 1))}
		want := make(map[string]int64)
		content, duplicates := o.file(5000, false, want)
		got := r.build(r.plan(upload(content)))
		if got.Report.Lines != 5000 || got.Report.Rejected != 0 || got.Report.Duplicates != duplicates {
			t.Fatalf("%+v, expected %d duplicates", got.Report, duplicates)
		}
		base := got.Version
		r.check(&base, want)
		for range 12 {
			before := maps.Clone(want)
			var p *Plan
			var duplicates, expired int64
			switch mode := o.IntN(5); mode {
			case 0:
				clear(want)
				content, duplicates = o.file(o.IntN(4000), false, want)
				p = r.plan(upload(content))
			case 1, 2: // add, remove
				content, duplicates = o.file(o.IntN(3000), mode == 2, want)
				p = r.plan(upload(content), r.from(&base), func(p *Plan) { p.Remove = mode == 2 })
			case 3: // compact
				p = r.plan(r.from(&base), func(p *Plan) {
					p.Edits = make(map[string]namelist.Change)
					for range o.IntN(500) {
						c := namelist.Change{Entry: namelist.Entry{ID: o.id(), ExpiresMS: o.expires()}, Remove: o.IntN(2) == 0}
						p.Edits[c.ID] = c
						if want[c.ID] = c.ExpiresMS; c.Remove {
							delete(want, c.ID)
						}
					}
					p.DropBefore = time.UnixMilli(FirstMS + o.Int64N(FirstMS))
					for id, expires := range want {
						if expires != 0 && expires < p.DropBefore.UnixMilli() {
							delete(want, id)
							expired++
						}
					}
				})
			case 4: // expand, with other filters
				p = r.plan(r.from(&base), func(p *Plan) { p.Filter = filter.Kinds()[o.IntN(3)] })
			}
			got := r.build(p)
			if got.Report.Duplicates != duplicates || got.Expired != expired {
				t.Fatalf("%+v, %d expired, expected %d duplicates, %d expired", got.Report, got.Expired, duplicates, expired)
			}
			r.check(&base, before)
			base = got.Version
			r.check(&base, want)
		}
	})
}

// Many partitions, segments and blocks; no segment leaves the compact encoding.
func TestBuildLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	want := make(map[string]int64)
	for i := range 300_000 {
		want[fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15)] = 0
	}
	b, p := r.builder(), r.plan(upload(file(want)))
	got, err := b.Build(bounded(t), p)
	if err != nil {
		t.Fatal(err)
	}
	v := got.Version
	r.check(&v, want)
	for i := range v.Segments {
		key := r.segmentKey("vip", &v, i)
		cmd := r.client.B().ObjectEncoding().Key(key).Build()
		if encoding, err := r.client.Do(bounded(t), cmd).ToString(); encoding != "listpack" {
			t.Fatalf("segment %d of %d is a %s, %v", i, v.Segments, encoding, err)
		}
	}
	if perID := float64(v.Bytes) / float64(v.Count); perID > 25 {
		t.Errorf("%.1f bytes an id", perID)
	}
	left, err := os.ReadDir(b.Dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder has %v, %v", left, err)
	}
	again, err := b.Build(bounded(t), p)
	if err != nil || again.Version != v || again.Report.Lines != 300_000 {
		t.Errorf("again %+v, %v", again, err)
	}
}

func TestBuildEmpty(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for _, kind := range filter.Kinds() {
			v := r.build(r.plan(upload(""), func(p *Plan) { p.Filter = kind })).Version
			if v.Segments != 1 {
				t.Errorf("%d segments", v.Segments)
			}
			r.check(&v, map[string]int64{})
		}
	})
}

// One id on half a million lines and more needs little memory.
func TestBuildSameID(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	got := r.build(r.plan(upload(strings.Repeat("a\nb,500000000\n", squeezeAt) + "a,700000000\n")))
	r.check(&got.Version, map[string]int64{"a": 700_000_000_000, "b": 500_000_000_000})
	if got.Report.Lines != 2*squeezeAt+1 || got.Report.Duplicates != 2*squeezeAt-1 {
		t.Errorf("%+v; want got.Report.Lines == 2*squeezeAt+1, got.Report.Duplicates == 2*squeezeAt-1", got.Report)
	}
}

// A build whose process was killed after any step, or in it, goes on to the same version.
func TestResume(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		want := make(map[string]int64)
		for i := range 60_000 {
			want[fmt.Sprintf("user-%08d-%s", i, strings.Repeat("x", 50))] = int64(i%3) * FirstMS
		}
		base := r.build(r.plan(upload(file(want)))).Version
		lines := "\"\nuser-00000001-" + strings.Repeat("x", 50) + ",500000000\n"
		for i := range 10_000 {
			id := fmt.Sprintf("new-%08d-%s", i, strings.Repeat("x", 50))
			lines += id + "\n"
			want[id] = 0
		}
		change := func(p *Plan) {
			upload(lines)(p)
			r.from(&base)(p)
			p.Edits = map[string]namelist.Change{"edited": {Entry: namelist.Entry{ID: "edited"}}}
		}
		want["edited"], want["user-00000001-"+strings.Repeat("x", 50)] = 0, 500_000_000_000
		whole := r.build(r.plan(change))
		r.check(&whole.Version, want)

		p, steps, done := r.plan(change), make(map[Step]int), make(map[Step]int64)
		dir, killed := filepath.Join(t.TempDir(), "spool"), filepath.Join(t.TempDir(), "killed")
		for stopped := 0; ; stopped++ {
			ctx, stop := context.WithCancel(bounded(t))
			b := &Builder{Dir: dir, To: r.Segments, Progress: func(now Progress) {
				if again := now.Step == StepParse || now.Step == StepBase || now.Step == StepVerify; steps[now.Step] == 0 || !again && now.Done > done[now.Step] {
					steps[now.Step]++
					done[now.Step] = now.Done
					if ctx.Err() == nil { // what is written after this, a killed process would not have written
						if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
							t.Error(err)
						}
						tear(t, killed, now.Step)
					}
					stop()
				}
			}}
			got, err := b.Build(ctx, p)
			stop()
			if err == nil {
				got.Version.Number, got.Version.Build, got.Version.Bytes = whole.Version.Number, whole.Version.Build, whole.Version.Bytes
				if got.Version != whole.Version || got.Report.Rejected != 1 || got.Report.Duplicates != 0 {
					t.Errorf("after %d stops\n%+v\n%+v, expected\n%+v", stopped, got.Report, got.Version, whole.Version)
				}
				break
			}
			if !errors.Is(err, context.Canceled) || stopped > 100 {
				t.Fatal(err)
			}
			if err := errors.Join(os.RemoveAll(dir), os.Rename(killed, dir)); err != nil {
				t.Fatal(err)
			}
		}
		if steps[StepParse] == 0 || steps[StepBase] == 0 || steps[StepSort] == 0 || steps[StepWrite] < 2 || steps[StepVerify] == 0 {
			t.Errorf("stopped in %v", steps)
		}
		v := whole.Version
		v.Number, v.Build = p.Number, p.Build
		r.check(&v, want)
	})
}

// tear leaves a part of a record in the files that a step writes.
func tear(t *testing.T, dir string, step Step) {
	t.Helper()
	family := map[Step]string{StepParse: familyLines, StepBase: familyBase}[step]
	if family == "" {
		return
	}
	f, err := os.OpenFile(partitionFile(dir, family, 0), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString("\x09\x00torn")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// A build begins anew after the machine has: a power failure can take what was not yet on the disk,
// and keep the journal.
func TestAfterPowerFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	b := r.builder()
	ctx, stop := context.WithCancel(bounded(t))
	b.Progress = func(p Progress) {
		if p.Step == StepSort {
			stop()
		}
	}
	p := r.plan(upload("a\nb\n"))
	if _, err := b.Build(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var j journal
	if found, err := load(b.Dir, journalFile, &j); !found || err != nil {
		t.Fatalf("%t, %v; want a journal", found, err)
	}
	j.Boot, j.Partitions = "another", make([]sorted, len(j.Partitions))
	if err := errors.Join(j.save(b.Dir), newSpool(b.Dir, familyLines, 0).clear()); err != nil {
		t.Fatal(err)
	}
	got, err := b.Build(bounded(t), p)
	if err != nil {
		t.Fatal(err)
	}
	r.check(&got.Version, map[string]int64{"a": 0, "b": 0})
}

// Another build begins anew in the folder of one that was not finished.
func TestAnotherBuild(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	b := r.builder()
	ctx, stop := context.WithCancel(bounded(t))
	b.Progress = func(p Progress) {
		if p.Step == StepSort {
			stop()
		}
	}
	p := r.plan(upload("a\n"))
	if _, err := b.Build(ctx, p); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	other := *p
	other.Number++
	if _, err := b.Build(bounded(t), &other); err == nil {
		t.Error("one build made two versions")
	}
	if err := os.WriteFile(filepath.Join(b.Dir, journalFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := b.Build(bounded(t), r.plan(upload("b\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.check(&got.Version, map[string]int64{"b": 0})
}

// A build does not begin to write from a base that is damaged, and Verify finds the same.
func TestDamagedBase(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			harm func(key string, v *namelist.Version)
			want string
		}{
			"segment deleted":        {func(key string, _ *namelist.Version) { r.do("DEL", key) }, "segment 1 has no seal"},
			"seal deleted":           {func(key string, _ *namelist.Version) { r.do("HDEL", key, "") }, "segment 1 has no seal"},
			"seal of another build":  {func(key string, _ *namelist.Version) { r.do("HSET", key, "", newBuild()+" 3") }, "segment 1 is of build"},
			"seal without a count":   {func(key string, v *namelist.Version) { r.do("HSET", key, "", v.Build+" x") }, "segment 1 has the seal"},
			"entry added":            {func(key string, _ *namelist.Version) { r.do("HSET", key, "x", "") }, "and its seal says"},
			"entry replaced":         {func(key string, _ *namelist.Version) { r.replace(key) }, "its digest is"},
			"expiry that is no time": {func(key string, _ *namelist.Version) { r.do("HSET", key, r.someID(key), "x") }, `with the value "x"`},
			"count of the version":   {func(_ string, v *namelist.Version) { v.Count++ }, "its digest is"},
		} {
			t.Run(name, func(t *testing.T) {
				ids := make(map[string]int64)
				for i := range 1000 {
					ids[fmt.Sprint("user-", i)] = 0
				}
				v := r.build(r.plan(upload(file(ids)))).Version
				c.harm(r.segmentKey("vip", &v, 1), &v)
				keys := r.keys()
				damaged := &DamageError{}
				if _, err := r.builder().Build(bounded(t), r.plan(upload("a\n"), r.from(&v))); !errors.As(err, &damaged) || !strings.Contains(damaged.Why, c.want) {
					t.Errorf("build: %v, expected %s", err, c.want)
				}
				if err := r.Verify(bounded(t), "vip", &v, func(uint32) {}); !errors.As(err, &damaged) || !strings.Contains(damaged.Why, c.want) {
					t.Errorf("verify: %v, expected %s", err, c.want)
				}
				if n := r.keys(); n != keys {
					t.Errorf("%d keys were written", n-keys)
				}
			})
		}
	})
}

func (r *rig) someID(key string) string {
	r.t.Helper()
	m := r.do("HKEYS", key)
	ids, err := m.AsStrSlice()
	if err != nil || len(ids) < 2 {
		r.t.Fatal(ids, err)
	}
	return ids[1]
}

func (r *rig) replace(key string) {
	r.do("HDEL", key, r.someID(key))
	r.do("HSET", key, "stranger", "")
}

func TestVerifyBlocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	v := r.build(r.plan(upload("a\nb\n"))).Version
	key := r.blockKey("vip", &v, 0)
	for name, harm := range map[string]func(){
		"changed": func() { r.do("SETRANGE", key, "50", "x") }, "deleted": func() { r.do("DEL", key) },
	} {
		harm()
		var damaged *DamageError
		if err := r.Verify(bounded(t), "vip", &v, func(uint32) {}); !errors.As(err, &damaged) {
			t.Errorf("%s: %v; want errors.As(err, &damaged)", name, err)
		}
	}
}

func TestLookupRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		v := r.build(r.plan(upload("a\n"))).Version
		other := v
		other.Build = newBuild()
		for name, v := range map[string]*namelist.Version{"another build": &other, "no segment": {Number: 77, Build: v.Build}} {
			var damaged *DamageError
			if found, err := r.Lookup(bounded(t), "vip", v, 0, []string{"a"}); !errors.As(err, &damaged) {
				t.Errorf("%s: %v, %v; want errors.As(err, &damaged)", name, found, err)
			}
		}
	})
}

// Unlink removes what a build has written, and nothing of another build.
func TestUnlink(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ids := make(map[string]int64)
		for i := range 2000 {
			ids[fmt.Sprint("user-", i)] = 0
		}
		remove := func(v *namelist.Version) (int64, error) { return r.Unlink(bounded(t), "vip", v) }
		kept, gone := r.build(r.plan(upload(file(ids)))).Version, r.build(r.plan(upload(file(ids)))).Version
		keys := int(gone.Segments) + 1
		other := gone
		other.Build = newBuild()
		if n, err := remove(&other); n != 0 || err != nil {
			t.Errorf("of another build: %d, %v", n, err)
		}
		r.check(&gone, ids)
		// One segment is of a build of the same number, as after a list was made again.
		r.do("HSET", r.segmentKey("vip", &gone, 3), "", other.Build+" 1")
		before := r.keys()
		if n, err := remove(&gone); int(n) != keys-1 || err != nil {
			t.Errorf("%d, %v, expected %d", n, err, keys-1)
		}
		if n := before - r.keys(); n != keys-1 {
			t.Errorf("%d keys are gone, expected %d", n, keys-1)
		}
		if n, err := remove(&gone); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
		r.check(&kept, ids)
	})
}

// budgetOf is of a server whose lists and other builds have so many bytes.
func budgetOf(lists, others int64) Budget {
	return Budget{MaxBytes: 1_000_000, Reserve: func(context.Context, namelist.Reservation) (int64, int64, error) { return lists, others, nil }}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--maxmemory", "8mb"))
	r := newRig(t, redis.Target)
	ids := make(map[string]int64)
	for i := range 20_000 {
		ids[fmt.Sprintf("%016x", i)] = 0
	}
	budget := func(b Budget) func(*Plan) { return func(p *Plan) { p.Budget = b } }
	v := r.build(r.plan(upload(file(ids)), budget(budgetOf(400_000, 0)))).Version
	for name, c := range map[string]struct {
		entries int
		budget  Budget
		what    string
	}{
		"max_bytes": {20_000, budgetOf(600_000, 0), "max_bytes"},
		"reserved":  {20_000, budgetOf(300_000, 300_000), "max_bytes"},
		"maxmemory": {250_000, Budget{}, "70 % of maxmemory"},
	} {
		for i := range c.entries {
			ids[fmt.Sprintf("%016x", i)] = 0
		}
		keys := r.keys()
		var refused *BudgetError
		_, err := r.builder().Build(bounded(t), r.plan(upload(file(ids)), budget(c.budget)))
		if !errors.As(err, &refused) || refused.What != c.what || refused.Used+refused.Reserved+refused.Bytes <= refused.Limit {
			t.Errorf("%s: %v; want errors.As(err, &refused), refused.What == %v, refused.Used+refused.Reserved+refused.Bytes > %v", name, err, c.what, refused.Limit)
		} else if estimated, per := refused.Bytes, float64(v.Bytes)/float64(v.Count); float64(estimated) < per*float64(len(ids)) || float64(estimated) > 1.4*per*float64(len(ids)) {
			t.Errorf("%s: estimated %d for %d ids, measured %.1f an id", name, estimated, len(ids), per)
		}
		if r.keys() != keys {
			t.Errorf("%s: keys were written", name)
		}
	}
}

// Without memory nothing is written, and a build ends; it goes on when there is some.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	kept := r.build(r.plan(upload("a\n"))).Version
	ids := make(map[string]int64)
	for i := range 20_000 {
		ids[fmt.Sprint("user-", i)] = 0
	}
	b, limited := r.builder(), false
	b.Progress = func(p Progress) {
		if p.Step == StepWrite && !limited { // the budget was asked before
			limited = true
			r.do("CONFIG", "SET", "maxmemory", "1")
		}
	}
	p := r.plan(upload(file(ids)), func(p *Plan) { p.Upload.Bytes = 4 * partitionBytes })
	if _, err := b.Build(bounded(t), p); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatal(err)
	}
	again := &batch{keys: []string{r.segmentKey("vip", &kept, 0)}, args: [][]string{{"1", "b", ""}}}
	if err := r.write(bounded(t), kept.Build, again); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatal(err)
	}
	r.check(&kept, map[string]int64{"a": 0})
	r.do("CONFIG", "SET", "maxmemory", "0")
	got, err := b.Build(bounded(t), p)
	if err != nil {
		t.Fatal(err)
	}
	r.check(&got.Version, ids)
}

// A server that does not take the compact encoding ends the build.
func TestEncoding(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--hash-max-listpack-entries", "64"))
	ids := make(map[string]int64)
	for i := range 2000 {
		ids[fmt.Sprint("user-", i)] = 0
	}
	r := newRig(t, redis.Target)
	if _, err := r.builder().Build(bounded(t), r.plan(upload(file(ids)))); err == nil || !strings.Contains(err.Error(), "hash-max-listpack-entries") {
		t.Error(err)
	}
	r = newRig(t, redis.Target, func(c *SegmentsConfig) { c.Entries = 64 })
	v := r.build(r.plan(upload(file(ids)))).Version
	r.check(&v, ids)
}

// Where Pace is set, it is called after each call, and its error ends the build.
func TestPace(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		enough, calls, most := errors.New("enough"), 0, 1<<30
		paced := newRig(t, r.redis, func(c *SegmentsConfig) {
			c.Pace = func(_ context.Context, took time.Duration) error {
				if calls++; took <= 0 || calls > most {
					return enough
				}
				return nil
			}
		})
		ids := make(map[string]int64)
		for i := range 5000 {
			ids[fmt.Sprint("user-", i)] = 0
		}
		v := paced.build(paced.plan(upload(file(ids)))).Version
		paced.check(&v, ids)
		if calls < 2*5000/pacedEntries {
			t.Errorf("%d calls", calls)
		}
		calls, most = 0, 3
		if _, err := paced.builder().Build(bounded(t), paced.plan(upload(file(ids)))); !errors.Is(err, enough) {
			t.Error(err)
		}
	})
}

func TestSegmentsOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		count int64
		most  int
		mean  float64 // at least
	}{{0, 127, 0}, {127, 127, 127}, {128, 127, 60}, {10_000, 127, 80}, {10_000_000, 127, 76}, {100_000_000, 127, 73}, {1_000_000, 511, 400}} {
		n := segmentsOf(c.count, c.most)
		if mean := float64(c.count) / float64(n); mean < c.mean || mean > float64(c.most) {
			t.Errorf("%d entries of at most %d a segment: %d segments, %.1f on average", c.count, c.most, n, mean)
		}
		fullest := 0
		for seed := range uint64(min(3, 1_000_000/max(c.count, 1))) {
			has := make([]int, n)
			for i := range c.count {
				has[form.Segment(form.Sum(seed, fmt.Sprint(i)), n)]++
			}
			for _, k := range has {
				fullest = max(fullest, k)
			}
		}
		if fullest > c.most {
			t.Errorf("%d entries: the fullest segment has %d", c.count, fullest)
		}
	}
}
