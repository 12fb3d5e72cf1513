package version

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"path/filepath"
	"testing"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestMain runs the tests with the rights of a replica.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, Access) }

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, files)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// rig is a list server, and a client that sees and changes all of it.
type rig struct {
	*Segments
	t      testing.TB
	redis  *redistest.Target
	client rueidis.Client
	number int64
}

func newRig(t testing.TB, redis *redistest.Target, change ...func(*SegmentsConfig)) *rig {
	t.Helper()
	cfg := SegmentsConfig{Prefix: redis.Prefix(t), Cluster: redis.IsCluster()}
	for _, f := range change {
		f(&cfg)
	}
	return &rig{
		Segments: NewSegments(cfg, redis.RoleClient(t), zaptest.NewLogger(t), nil),
		t:        t, redis: redis, client: redis.Client(t),
	}
}

func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		test(t, newRig(t, redis))
	})
}

func (r *rig) do(args ...string) rueidis.RedisMessage {
	r.t.Helper()
	m, err := r.client.Do(bounded(r.t), r.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%v: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
	return m
}

// keys are how many of the rig's keys there are.
func (r *rig) keys() (n int) {
	r.t.Helper()
	for _, node := range r.client.Nodes() {
		got, err := node.Do(bounded(r.t), node.B().Keys().Pattern(r.cfg.Prefix+":*").Build()).AsStrSlice()
		if err != nil {
			r.t.Fatal(err)
		}
		n += len(got)
	}
	return n
}

const seed = 42

// plan is of the next version.
func (r *rig) plan(change ...func(*Plan)) *Plan {
	r.number++
	p := &Plan{List: "vip", Number: r.number, Build: newBuild(), Form: form.Exact, Seed: seed, Filter: filter.Fuse}
	for _, f := range change {
		f(p)
	}
	return p
}

func newBuild() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (r *rig) builder() *Builder {
	return &Builder{Dir: filepath.Join(r.t.TempDir(), "spool"), To: r.Segments}
}

func (r *rig) build(p *Plan) *Result {
	r.t.Helper()
	got, err := r.builder().Build(bounded(r.t), p)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func upload(content string) func(*Plan) { return func(p *Plan) { p.Upload = text(CSV, content) } }

func (r *rig) from(v *namelist.Version) func(*Plan) {
	return func(p *Plan) { p.Base, p.From = v, r.Segments }
}

// file is a file with these entries.
func file(entries map[string]int64) string {
	var b bytes.Buffer
	for id, expires := range entries {
		b.WriteString(line(id, expires))
	}
	return b.String()
}

// entries are what a version has.
func (r *rig) entries(v *namelist.Version) map[string]int64 {
	r.t.Helper()
	got := make(map[string]int64)
	err := r.Read(bounded(r.t), "vip", v, func(_ uint32, id string, expires int64) error {
		got[id] = expires
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// check holds a version against the entries that it must have: in segments, by look-ups, in the
// filter, and by its digest.
func (r *rig) check(v *namelist.Version, want map[string]int64) {
	r.t.Helper()
	if got := r.entries(v); !maps.Equal(got, want) {
		r.t.Fatalf("version %d has %d entries, expected %d:\n%.500v\n%.500v", v.Number, len(got), len(want), got, want)
	}
	var digest form.Digest
	for id, expires := range want {
		digest.Add(id, expires)
	}
	if v.Digest != digest.String() || v.Count != int64(len(want)) {
		r.t.Fatalf("version %d has %d entries and digest %s, expected %d, %s", v.Number, v.Count, v.Digest, len(want), &digest)
	}
	if err := r.Verify(bounded(r.t), "vip", v, func(uint32) {}); err != nil {
		r.t.Fatal(err)
	}
	var filters []*filter.Block
	for i := range blocks(v) {
		wire, err := r.Block(bounded(r.t), "vip", v, i)
		if err != nil {
			r.t.Fatal(err)
		}
		block, err := filter.Decode(wire, v.Build, i)
		if err != nil {
			r.t.Fatal(err)
		}
		filters = append(filters, block)
	}
	asked := 0
	for id, expires := range want {
		hash := form.Sum(seed, id)
		if len(filters) > 0 && !filters[form.Block(hash, v.BlockBits)].Contains(hash) {
			r.t.Fatalf("%q is not in the filter", id)
		}
		if asked++; asked > 200 {
			continue
		}
		found, err := r.Lookup(bounded(r.t), "vip", v, form.Segment(hash, v.Segments), []string{id, id + "x"})
		stranger, known := want[id+"x"]
		if !known {
			stranger = -1
		}
		if err != nil || found[0] != expires || found[1] != stranger {
			r.t.Fatalf("%q: %v, %v, expected %d and %d", id, found, err, expires, stranger)
		}
	}
}
