package manage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// rig is the manager of one replica on a Redis.
type rig struct {
	*Manager
	t       *testing.T
	ctx     context.Context
	control *namelist.Control
	redis   *redistest.Target
	prefix  string
	servers map[string]*version.Segments
}

// newRig starts one replica; before may change the rig until then.
func newRig(t *testing.T, redis *redistest.Target, before ...func(r *rig)) *rig {
	t.Helper()
	ctx := waittest.Context(t)
	log := zaptest.NewLogger(t)
	prefix := redis.Prefix(t)
	r := &rig{t: t, ctx: ctx, redis: redis, prefix: prefix, servers: make(map[string]*version.Segments)}
	r.control = namelist.NewControl(redis.RoleClient(t), prefix, redis.IsCluster(), log, nil)
	for _, name := range []string{"", "second"} {
		p := prefix
		if name != "" {
			p += name
		}
		r.servers[name] = version.NewSegments(
			version.SegmentsConfig{Prefix: p, Cluster: redis.IsCluster()}, redis.RoleClient(t), log, nil,
		)
	}
	r.check(r.control.PutServer(ctx, namelist.Server{Name: "second"}))
	for _, f := range before {
		f(r)
	}
	r.Manager = r.replica("r1", t.TempDir())
	return r
}

// put makes one more list server known.
func (r *rig) put(s namelist.Server, cfg version.SegmentsConfig) {
	r.t.Helper()
	cfg.Prefix, cfg.Cluster = r.prefix+s.Name, r.redis.IsCluster()
	r.servers[s.Name] = version.NewSegments(cfg, r.redis.RoleClient(r.t), zaptest.NewLogger(r.t), nil)
	r.check(r.control.PutServer(r.ctx, s))
}

// replica starts the manager of one more replica.
func (r *rig) replica(self, dir string) *Manager {
	r.t.Helper()
	m := New(
		Config{Self: self, URL: "http://" + self + ":7480", Dir: dir, Pause: 20 * time.Millisecond, Server: r.server},
		r.control, zaptest.NewLogger(r.t),
	)
	r.check(m.Start(r.ctx))
	r.t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	return m
}

func (r *rig) server(_ context.Context, name string) (*version.Segments, error) {
	if s := r.servers[name]; s != nil {
		return s, nil
	}
	return nil, &NoServerError{name}
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// upload sends a file in chunks and commits it.
func (r *rig) upload(u Upload, content string) Upload {
	r.t.Helper()
	u, err := r.OpenUpload(r.ctx, u)
	r.check(err)
	const size = 1000
	for at := 0; at < len(content); at += size {
		part := []byte(content[at:min(at+size, len(content))])
		sum := crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli))
		_, err = r.Chunk(u.ID, int64(at), part, sum)
		r.check(err)
		_, err = r.Chunk(u.ID, int64(at), part, sum) // a repeated one
		r.check(err)
	}
	_, err = r.Commit(r.ctx, u.ID, int64(len(content)))
	r.check(err)
	_, err = r.Commit(r.ctx, u.ID, int64(len(content)))
	r.check(err)
	return r.ended(u.ID)
}

// ended waits until an upload and its operation, which ends after it, are over.
func (r *rig) ended(id string) (u Upload) {
	r.t.Helper()
	r.until("the upload has ended", func() bool {
		var err error
		u, err = r.Upload(id)
		r.check(err)
		return u.State == Ready || u.State == Failed
	})
	r.rests(u.List)
	return u
}

// until waits for what Redis or a folder says. Nothing announces it here.
func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	waittest.Until(r.t, what, is)
}

func (r *rig) head(list string) namelist.Head {
	r.t.Helper()
	h, err := r.control.Head(r.ctx, list)
	r.check(err)
	return h
}

// rests waits until nothing runs.
func (r *rig) rests(list string) {
	r.t.Helper()
	r.until("the operation is over", func() bool { h := r.head(list); return h.Op.ID == "" })
}

// serves waits until a version serves and nothing runs.
func (r *rig) serves(list string, version int64) {
	r.t.Helper()
	r.until(fmt.Sprintf("version %d serves", version), func() bool {
		h := r.head(list)
		return h.Serving != nil && h.Serving.Number == version && h.Op.ID == ""
	})
}

// members wants these answers, "id:true" or "id:false".
func (r *rig) members(list string, want ...string) {
	r.t.Helper()
	ids := make([]string, len(want))
	for i := range want {
		ids[i], _, _ = strings.Cut(want[i], ":")
	}
	a, err := r.Query(r.ctx, list, ids)
	r.check(err)
	for i, f := range a.Found {
		if got := fmt.Sprintf("%s:%v", f.ID, f.Member); got != want[i] {
			r.t.Errorf("%s at version %d, revision %d; want %s", got, a.Version, a.Revision, want[i])
		}
	}
}

func (r *rig) counts(list string, want int64) {
	r.t.Helper()
	c, err := r.Count(r.ctx, list)
	r.check(err)
	if c.Count != want {
		r.t.Errorf("count is %d, want %d", c.Count, want)
	}
}

// begin sends a file and commits it; its build goes on.
func (r *rig) begin(m *Manager, u Upload, content string) Upload {
	r.t.Helper()
	u, err := m.OpenUpload(r.ctx, u)
	r.check(err)
	_, err = m.Chunk(u.ID, 0, []byte(content), crc32.Checksum([]byte(content), crc32.MakeTable(crc32.Castagnoli)))
	r.check(err)
	u, err = m.Commit(r.ctx, u.ID, int64(len(content)))
	r.check(err)
	return u
}

func lines(from, to int) string {
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "user-%d\n", i)
	}
	return b.String()
}

var by = namelist.By{Author: "ops", Note: "test"}

// A list goes through its life: import, switch, edits, a second import, rollback, expansion, a
// move, and its end, after which no key is left.
func TestLife(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		_, err := r.control.Create(r.ctx, "vip", namelist.Spec{Expected: 1000})
		r.check(err)
		u := r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 1000))
		if u.State != Ready || u.Version.Count != 1000 || u.Version.Doubt != "" {
			t.Fatalf("upload: %+v", u)
		}
		r.serves("vip", 1)
		r.members("vip", "user-0:true", "user-999:true", "user-1000:false")

		edit := func(id string, remove bool) {
			t.Helper()
			_, err := r.control.Edit(
				r.ctx, "vip",
				namelist.EditRequest{Changes: []namelist.Change{{Entry: namelist.Entry{ID: id}, Remove: remove}}, By: by},
			)
			r.check(err)
		}
		edit("user-0", true)
		edit("guest", false)
		edit("nobody", true)
		edit("user-1", false)
		r.members("vip", "user-0:false", "guest:true", "nobody:false", "user-1:true")
		r.counts("vip", 1000)

		// An import that adds keeps the edits; the version has them.
		u = r.upload(Upload{List: "vip", Format: version.TXT, Mode: Add, By: by}, "guest-2\nguest-3\nbad\x01\n")
		if u.Version == nil || u.Version.Count != 1002 || u.Version.Rejected != 1 || u.Version.Doubt == "" {
			t.Fatalf("upload: %+v, %+v", u, u.Version)
		}
		if _, err := r.Switch(
			r.ctx, "vip", SwitchRequest{Number: 2, Serving: 1, By: by},
		); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Fatalf("switch to a version in doubt: %v", err)
		}
		_, err = r.control.Accept(r.ctx, "vip", 2)
		r.check(err)
		if _, err := r.Switch(
			r.ctx, "vip", SwitchRequest{Number: 2, Serving: 7, By: by},
		); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Fatalf("switch by one who saw another version: %v", err)
		}
		_, err = r.Switch(r.ctx, "vip", SwitchRequest{Number: 2, Serving: 1, By: by})
		r.check(err)
		r.serves("vip", 2)
		r.members("vip", "user-0:false", "guest:true", "guest-2:true", "user-1:true")
		edit("late", false)
		r.counts("vip", 1003)

		// A rollback keeps every edit since the older version was built.
		_, err = r.Switch(r.ctx, "vip", SwitchRequest{Number: 1, Serving: 2, By: by})
		r.check(err)
		r.serves("vip", 1)
		r.members("vip", "user-0:false", "guest:true", "late:true", "guest-2:false")

		_, err = r.Rebuild(r.ctx, "vip", namelist.OpExpand, "", by)
		r.check(err)
		r.serves("vip", 3)
		r.members("vip", "user-0:false", "guest:true", "late:true", "user-500:true")
		_, err = r.Rebuild(r.ctx, "vip", namelist.OpMove, "second", by)
		r.check(err)
		r.serves("vip", 4)
		if h := r.head("vip"); h.Server != "second" || h.Serving.Server != "second" {
			t.Errorf("the list is on %q, its version on %q", h.Server, h.Serving.Server)
		}
		r.members("vip", "user-0:false", "guest:true", "user-500:true")
		r.counts("vip", 1001)

		_, err = r.control.Delete(r.ctx, "vip", namelist.AnyVersion, false, by)
		r.check(err)
		r.until("the list is gone", func() bool {
			_, err := r.control.Head(r.ctx, "vip")
			return freeslot.CodeOf(err) == freeslot.CodeNotFound
		})
		r.until("no segment and no block is left", func() bool { return len(r.dataKeys()) == 0 })
	})
}

// dataKeys are all segments and blocks.
func (r *rig) dataKeys() (keys []string) {
	r.t.Helper()
	for _, node := range r.redis.Client(r.t).Nodes() {
		got, err := node.Do(r.ctx, node.B().Keys().Pattern(r.prefix+"*:lists:{*_*}").Build()).AsStrSlice()
		r.check(err)
		keys = append(keys, got...)
	}
	return keys
}

// A draft whose edit session is committed gets its first version of that.
func TestSessionOfDraft(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "deny", namelist.Spec{})
	r.check(err)
	op, err := r.OpenSession(r.ctx, "deny", by)
	r.check(err)
	_, _, err = r.control.Stage(
		r.ctx, "deny", op.ID, []namelist.Change{{Entry: namelist.Entry{ID: "eve"}}, {Entry: namelist.Entry{ID: "mallory"}}},
	)
	r.check(err)
	_, err = r.CommitSession(r.ctx, "deny", op.ID, nil, by)
	r.check(err)
	r.serves("deny", 1)
	r.members("deny", "eve:true", "mallory:true", "bob:false")
}

// An upload keeps why its version does not serve: the switch did not begin, or it failed.
func TestUnpublished(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	u := r.upload(Upload{List: "vip", Format: version.TXT, By: by}, lines(0, 1000))
	why := func(want string) {
		t.Helper()
		r.until("the upload says: "+want, func() bool {
			now, err := r.Upload(u.ID)
			r.check(err)
			return strings.Contains(now.Unpublished, want)
		})
	}
	publish := func(number int64) {
		r.publish(
			"vip", SwitchRequest{Number: number, Serving: namelist.AnyVersion, By: by},
			func(err error) { r.unpublished(u.ID, err) },
		)
	}
	publish(9)
	why("list vip has no version 9")
	client := r.redis.Client(t)
	for _, key := range r.dataKeys() {
		r.check(client.Do(r.ctx, client.B().Del().Key(key).Build()).Error())
	}
	publish(1)
	why("is damaged")
}

// TestPermittedSwitch: the switch of an import is from the version alone with which its size was
// compared. Another one that serves by then is kept.
func TestPermittedSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	compared := int64(namelist.AnyVersion)
	r.cfg.Permit = func(_ context.Context, _ *Upload, q *SwitchRequest) error {
		q.Serving = compared
		return nil
	}
	u := Upload{List: "vip", Format: version.TXT, Switch: true, By: by}
	r.upload(u, lines(0, 1000))
	r.serves("vip", 1)

	compared = 0 // as if version 1 began to serve after the comparison
	second := r.upload(u, lines(0, 900))
	r.until("the upload says why it is not published", func() bool {
		now, err := r.Upload(second.ID)
		r.check(err)
		return strings.Contains(now.Unpublished, "version")
	})
	r.serves("vip", 1)
	compared = 1
	r.upload(u, lines(0, 800))
	r.serves("vip", 3)
}

// Uploads are bounded and checked, and other replicas say where they are.
func TestUploadRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	refused := func(code freeslot.Code, err error) {
		t.Helper()
		if freeslot.CodeOf(err) != code {
			t.Errorf("%v, want code %s", err, code)
		}
	}
	_, err = r.OpenUpload(r.ctx, Upload{List: "vip", Mode: "merge", Format: "xml"})
	refused(freeslot.CodeInvalidArgument, err)
	_, err = r.OpenUpload(r.ctx, Upload{List: "none"})
	refused(freeslot.CodeNotFound, err)
	u, err := r.OpenUpload(r.ctx, Upload{List: "vip"})
	r.check(err)
	data := []byte("a\nb\n")
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	_, err = r.Chunk(u.ID, 4, data, sum)
	refused(freeslot.CodeInvalidArgument, err)
	_, err = r.Chunk(u.ID, 0, data, sum+1)
	refused(freeslot.CodeInvalidArgument, err)
	_, err = r.Chunk(u.ID, 0, nil, 0)
	refused(freeslot.CodeInvalidArgument, err)
	_, err = r.Chunk(u.ID, 0, data, sum)
	r.check(err)
	_, err = r.Commit(r.ctx, u.ID, 3)
	refused(freeslot.CodeInvalidArgument, err)
	other := r.replica("r2", t.TempDir())
	_, err = other.Upload(u.ID)
	if elsewhere, ok := errors.AsType[*ElsewhereError](err); !ok || elsewhere.URL != "http://r1:7480" {
		t.Errorf("another replica: %v", err)
	}
	_, err = r.Upload("nothing")
	refused(freeslot.CodeNotFound, err)
	r.check(r.DropUpload(r.ctx, u.ID))
	_, err = r.Upload(u.ID)
	refused(freeslot.CodeNotFound, err)
}

// The build of a process that was killed goes on in the next one with its folder.
func TestBuildGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	dir := t.TempDir()
	m := New(Config{Self: "killed", URL: "http://killed", Dir: dir, Server: r.server}, r.control, zaptest.NewLogger(t))
	r.check(m.Start(r.ctx))
	u, err := m.OpenUpload(r.ctx, Upload{List: "vip", Format: version.TXT, Switch: true, By: by})
	r.check(err)
	data := []byte(lines(0, 5000))
	_, err = m.Chunk(u.ID, 0, data, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	r.check(err)
	// What a process leaves that is killed just after it has begun to build.
	op, err := r.control.Begin(r.ctx, "vip", namelist.Begin{Kind: namelist.OpImport, Holder: "killed", Serving: 0, By: by})
	r.check(err)
	u, err = m.Upload(u.ID)
	r.check(err)
	u.State, u.Op = Building, &op
	r.check(m.keep(&u))
	r.check(m.Stop(r.ctx))
	next := New(Config{Self: "next", URL: "http://killed", Dir: dir, Server: r.server}, r.control, zaptest.NewLogger(t))
	r.check(next.Start(r.ctx))
	t.Cleanup(func() { r.check(next.Stop(context.Background())) })
	r.serves("vip", 1)
	r.members("vip", "user-4999:true", "user-5000:false")
}

// An upload whose file has lost data, as in a power failure, becomes no version.
func TestLostData(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	for what, lose := range map[string]func(file string) error{
		"its end": func(file string) error { return os.Truncate(file, 40_000) }, "all": os.Remove,
		"a page": func(file string) error {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt(make([]byte, 4096), 4096)
				err = errors.Join(err, f.Close())
			}
			return err
		},
	} {
		u, err := r.OpenUpload(r.ctx, Upload{List: "vip", Format: version.TXT, Switch: true, By: by})
		r.check(err)
		data := []byte(lines(0, 5000))
		_, err = r.Chunk(u.ID, 0, data, crc32.Checksum(data, castagnoli))
		r.check(err)
		r.check(lose(r.data(u.ID)))
		_, err = r.Commit(r.ctx, u.ID, int64(len(data)))
		r.check(err)
		if u = r.ended(u.ID); u.State != Failed || !strings.Contains(u.Why, "lost data") {
			t.Errorf("an upload that lost %s is %s: %s; want it failed for the lost data", what, u.State, u.Why)
		}
	}
}

// What is known late removes nothing of what serves: an old head of a list that was made again, and
// a build that lost its lease after it had become the version that serves.
func TestRemovesNothingInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	_, err := r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 100))
	r.serves("vip", 1)
	_, err = r.control.Delete(r.ctx, "vip", namelist.AnyVersion, true, by)
	r.check(err)
	old := r.headOf("vip")
	r.until("the list is gone", func() bool {
		_, err := r.control.Head(r.ctx, "vip")
		return freeslot.CodeOf(err) == freeslot.CodeNotFound
	})
	_, err = r.control.Create(r.ctx, "vip", namelist.Spec{})
	r.check(err)
	r.upload(Upload{List: "vip", Format: version.TXT, Switch: true, By: by}, lines(0, 100))
	r.serves("vip", 2)
	if old.State == namelist.Deleting {
		r.check(r.tend(&old))
	}
	old.State, old.Birth = namelist.Deleting, "another"
	r.check(r.tend(&old))
	r.check(r.removeBuild(endedBuild{list: "vip", version: *r.head("vip").Serving}))
	r.members("vip", "user-0:true", "user-99:true", "user-100:false")
}

// headOf is also that of a list that has just gone.
func (r *rig) headOf(list string) namelist.Head {
	h, _ := r.control.Head(r.ctx, list)
	h.Name = list
	return h
}

// A list server is known again after control was flushed.
func TestServersAfterFlush(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	control := namelist.NewControl(redis.Client(t), "flushed", false, zaptest.NewLogger(t), nil)
	r := &rig{t: t, ctx: t.Context(), control: control, redis: redis.Target}
	third := namelist.Server{Name: "third", Addresses: []string{"redis://127.0.0.1:1"}}
	m := New(
		Config{Self: "r1", Dir: t.TempDir(), Pause: 20 * time.Millisecond, Servers: []namelist.Server{third}}, control,
		zaptest.NewLogger(t),
	)
	r.check(m.Start(r.ctx))
	t.Cleanup(func() { r.check(m.Stop(context.Background())) })
	known := func() bool {
		servers, err := control.Servers(r.ctx)
		r.check(err)
		return len(servers) == 1 && servers[0].Name == "third"
	}
	r.until("the server is known", known)
	r.check(redistest.Ask(r.ctx, redis.Process().Addr(), "FLUSHALL").Error())
	r.until("the server is known again", known)
}
