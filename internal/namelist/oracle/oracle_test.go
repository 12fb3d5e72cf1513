package oracle

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/reader"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/namelist"
)

const (
	ids   = 20_000 // of the first file
	all   = 30_000 // with those that come later, and strangers
	steps = 12
	list  = "vip"
)

var by = lists.By{Author: "oracle", Note: "test"}

func name(id int) string { return fmt.Sprintf("user-%d", id) }

// content is what a version must have.
type content struct {
	base int64
	has  []bool
}

// edit is the change of one id.
type edit struct {
	revision int64
	remove   bool
}

// answer is one that a client gave.
type answer struct {
	id, version, revision uint32
	yes                   bool
}

// oracle knows what a list has at each version and revision.
type oracle struct {
	versions map[int64]content

	mu    sync.Mutex
	edits map[int][]edit // guarded by mu; by id
}

func (o *oracle) edited(revision int64, changes map[int]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, remove := range changes {
		o.edits[id] = append(o.edits[id], edit{revision, remove})
	}
}

// sort has the edits in the order of their revisions.
func (o *oracle) sort() {
	for _, of := range o.edits {
		slices.SortFunc(of, func(a, b edit) int { return int(a.revision - b.revision) })
	}
}

func (o *oracle) has(v content, id int, revision int64) bool {
	has, newest := v.has[id], v.base
	for _, e := range o.edits[id] {
		if e.revision > newest && e.revision <= revision {
			has, newest = !e.remove, e.revision
		}
	}
	return has
}

// built notes a version made of another one with its edits, and of a file.
func (o *oracle) built(number, base, from int64, mode manage.Mode, file []int) {
	v := content{base: base, has: make([]bool, all)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if mode != manage.Replace {
		for id := range v.has {
			v.has[id] = o.has(o.versions[from], id, base)
		}
	}
	for _, id := range file {
		v.has[id] = mode != manage.Remove
	}
	o.versions[number] = v
}

type rig struct {
	*manage.Manager
	t       *testing.T
	ctx     context.Context
	control *lists.Control
	oracle  *oracle
	random  *rand.Rand
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			r.t.Fatalf("never: %s", what)
		}
	}
}

// serving waits until nothing runs, and returns the version that serves.
func (r *rig) serving(number int64) (v lists.Version) {
	r.t.Helper()
	r.until(fmt.Sprintf("version %d serves", number), func() bool {
		h, err := r.control.Head(r.ctx, list)
		r.check(err)
		if h.Serving == nil || h.Op.ID != "" || number != 0 && h.Serving.Number != number {
			return false
		}
		v = *h.Serving
		return true
	})
	return v
}

// imports builds a version of a file, and switches to it.
func (r *rig) imports(from int64, mode manage.Mode, file []int) int64 {
	r.t.Helper()
	number := r.importsTo(list, mode, file)
	v := r.serving(number)
	r.oracle.built(v.Number, v.Base, from, mode, file)
	return v.Number
}

// importsTo imports a file into a list, and returns the number of the version.
func (r *rig) importsTo(list string, mode manage.Mode, file []int) int64 {
	r.t.Helper()
	var text strings.Builder
	for _, id := range file {
		text.WriteString(name(id) + "\n")
	}
	data := []byte(text.String())
	u, err := r.OpenUpload(r.ctx, manage.Upload{List: list, Format: version.TXT, Mode: mode, Switch: true, By: by})
	r.check(err)
	_, err = r.Chunk(u.ID, 0, data, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	r.check(err)
	_, err = r.Commit(r.ctx, u.ID, int64(len(data)))
	r.check(err)
	r.until("the upload has ended", func() bool {
		u, err = r.Upload(u.ID)
		r.check(err)
		return u.State == manage.Ready || u.State == manage.Failed
	})
	if u.Version == nil || u.Version.Doubt != "" {
		r.t.Fatalf("import: %s, %+v", u.Why, u.Version)
	}
	return u.Version.Number
}

func (r *rig) some(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = r.random.IntN(all - 1000)
	}
	return out
}

// rebuild expands, moves or compacts.
func (r *rig) rebuild(from int64, kind lists.OpKind, server string) int64 {
	r.t.Helper()
	op, err := r.Rebuild(r.ctx, list, kind, server, by)
	r.check(err)
	v := r.serving(op.Number)
	r.oracle.built(v.Number, v.Base, from, manage.Add, nil)
	return v.Number
}

func changes(random *rand.Rand) (of map[int]bool, out []lists.Change) {
	of = make(map[int]bool)
	for range 1 + random.IntN(3) {
		of[random.IntN(all-1000)] = random.IntN(2) == 0
	}
	for id, remove := range of {
		out = append(out, lists.Change{Entry: lists.Entry{ID: name(id)}, Remove: remove})
	}
	return of, out
}

// replica is the URL of one that serves clients by HTTP.
func (r *rig) replica(
	subscriptions rueidis.Client, server func(context.Context, string) (*version.Segments, error),
) string {
	r.t.Helper()
	from := reader.New(reader.Config{Subscriptions: subscriptions, Log: zap.NewNop(), Server: server}, r.control)
	r.check(from.Start(r.ctx))
	served := httptest.NewServer(apitest.New(r.t, api.Config{}, func(d *api.Deps) {
		d.Routes, d.Logger = []api.Routes{from.Routes}, zap.NewNop()
	}).Handler())
	r.t.Cleanup(func() {
		served.Close()
		r.check(from.Stop(context.Background()))
	})
	return served.URL
}

// Every yes and no of clients is what a map says, whatever is done to the list meanwhile.
func TestOracle(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx := waittest.Context(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	prefix, client := redis.Prefix(t), redis.Client(t)
	control := lists.NewControl(client, prefix, redis.IsCluster(), zap.NewNop(), nil)
	segments := version.NewSegments(
		version.SegmentsConfig{Prefix: prefix, Cluster: redis.IsCluster()}, client, zap.NewNop(), nil,
	)
	server := func(context.Context, string) (*version.Segments, error) { return segments, nil }
	r := &rig{
		t: t, ctx: ctx, control: control, random: rand.New(rand.NewPCG(seed, 1)),
		oracle: &oracle{versions: make(map[int64]content), edits: make(map[int][]edit)},
	}
	r.check(control.PutServer(ctx, lists.Server{Name: "second", Addresses: []string{redis.URL()}}))
	r.Manager = manage.New(manage.Config{
		Self: "r1", URL: "http://r1:7480", Dir: t.TempDir(), Pause: 50 * time.Millisecond,
		Server: server,
	}, control, zap.NewNop())
	r.check(r.Start(ctx))
	t.Cleanup(func() { r.check(r.Stop(context.Background())) })
	_, err := control.Create(ctx, list, lists.Spec{Expected: ids})
	r.check(err)
	file := make([]int, ids)
	for i := range file {
		file[i] = i
	}
	serving := r.imports(0, manage.Replace, file)

	done, working := make(chan struct{}), sync.WaitGroup{}
	finish := sync.OnceFunc(func() { close(done); working.Wait() })
	t.Cleanup(finish)
	answers := make([][]answer, 3)
	for i := range answers {
		cfg := namelist.Config{RedisURL: redis.URL(), KeyPrefix: prefix, Deadline: 2 * time.Second}
		switch i {
		case 1:
			cfg.MaxBytes = namelist.MinMaxBytes
		case 2:
			cfg.RedisURL, cfg.URL = "", r.replica(redis.Client(t), server)
		}
		c, err := namelist.Open(cfg)
		r.check(err)
		t.Cleanup(func() { r.check(c.Close(context.Background())) })
		l := c.List(list)
		r.check(l.WaitReady(ctx))
		random := rand.New(rand.NewPCG(seed, uint64(10+i)))
		working.Go(func() {
			pace := time.NewTicker(rest)
			defer pace.Stop()
			for len(answers[i]) < 3_000_000 {
				if len(answers[i])%100 == 0 {
					select {
					case <-done:
						return
					case <-pace.C:
					}
				}
				id := random.IntN(all)
				a := l.Check(ctx, name(id))
				if a.Verdict == namelist.Unknown {
					t.Errorf("client %d does not know %s: %+v", i, name(id), a)
					return
				}
				answers[i] = append(
					answers[i], answer{uint32(id), uint32(a.Version), uint32(a.Revision), a.Verdict == namelist.Yes},
				)
			}
		})
	}
	editing := rand.New(rand.NewPCG(seed, 2))
	working.Go(func() {
		ticker := time.NewTicker(2 * time.Millisecond) // else compaction begins by itself
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			of, out := changes(editing)
			revision, err := control.Edit(ctx, list, lists.EditRequest{Changes: out, Urgent: true, By: by})
			if err != nil {
				t.Errorf("edit: %v", err)
				return
			}
			r.oracle.edited(revision, of)
		}
	})

	before := serving
	for step := range steps {
		was := serving
		switch what := (step + r.random.IntN(2)) % 8; what {
		case 0:
			serving = r.imports(serving, manage.Replace, file[r.random.IntN(5000):])
		case 1:
			serving = r.imports(serving, manage.Add, r.some(500))
		case 2:
			serving = r.imports(serving, manage.Remove, r.some(500))
		case 3:
			serving = r.rebuild(serving, lists.OpExpand, "")
		case 4:
			serving = r.rebuild(serving, lists.OpMove, "second")
		case 5:
			serving = r.rebuild(serving, lists.OpCompact, "")
		case 6:
			if before == serving {
				continue
			}
			_, err := r.Switch(ctx, list, manage.SwitchRequest{Number: before, Serving: serving, By: by})
			r.check(err)
			serving = r.serving(before).Number
		case 7:
			op, err := r.OpenSession(ctx, list, by)
			r.check(err)
			of, out := changes(r.random)
			_, _, err = control.Stage(ctx, list, op.ID, out)
			r.check(err)
			revision, err := r.CommitSession(ctx, list, op.ID, nil, by)
			r.check(err)
			r.oracle.edited(revision, of)
		}
		if serving != was {
			before = was
		}
	}
	finish()
	r.oracle.judge(t, answers)
}

// judge compares all answers with what the oracle says.
func (o *oracle) judge(t *testing.T, answers [][]answer) {
	t.Helper()
	o.sort()
	for i, of := range answers {
		wrong, versions := 0, make(map[uint32]int)
		for _, a := range of {
			v, ok := o.versions[int64(a.version)]
			versions[a.version]++
			if ok && o.has(v, int(a.id), int64(a.revision)) == a.yes {
				continue
			}
			if wrong++; wrong <= 5 {
				t.Errorf(
					"client %d: %s is %v at version %d (known: %v), revision %d; edits %v", i, name(int(a.id)), a.yes, a.version, ok,
					a.revision, o.edits[int(a.id)],
				)
			}
		}
		t.Logf("client %d: %d answers of %d versions, %d wrong", i, len(of), len(versions), wrong)
		if len(versions) < 2 {
			t.Errorf("client %d saw no switch", i)
		}
	}
}
