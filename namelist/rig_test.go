package namelist

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/namelist/reader"
	listbuild "github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// rig is lists on a control server, whose segments are written by hand.
type rig struct {
	*lists.Control
	t       testing.TB
	redis   *redistest.Target
	url     string
	prefix  string
	control rueidis.Client
	data    rueidis.Client // of the server called server
	server  string
	replica string // its URL; clients go by it if there is one
}

// newRig has the segments on the control server.
func newRig(t testing.TB, redis *redistest.Target) *rig {
	t.Helper()
	client := redis.Client(t)
	prefix := redis.Prefix(t)
	return &rig{
		Control: lists.NewControl(client, prefix, redis.IsCluster(), zap.NewNop(), nil),
		t:       t, redis: redis, url: redis.URL(), prefix: prefix, control: client, data: client,
	}
}

// onAll runs a test on a server and on a cluster, with clients by Redis and by HTTP.
func onAll(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		bothWays(t, func(t *testing.T, by func(*rig) *rig) { test(t, by(newRig(t, redis))) })
	})
}

// bothWays runs a test with clients by Redis, and with clients by HTTP.
func bothWays(t *testing.T, test func(t *testing.T, by func(*rig) *rig)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, func(r *rig) *rig { return r })
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		test(t, func(r *rig) *rig {
			r.replica = r.serve(t).url
			return r
		})
	})
}

// replica is the routes of readers, as a replica has them.
type replica struct {
	api  *apitest.Server
	url  string
	http *httptest.Server
}

// serve starts a replica with the tokens of apitest.WithTokens.
func (r *rig) serve(t testing.TB) *replica {
	t.Helper()
	from := reader.New(reader.Config{
		Subscriptions: r.redis.Client(t), Log: zap.NewNop(),
		Server: func(_ context.Context, name string) (*listbuild.Segments, error) {
			client := r.control
			if name != "" {
				client = r.data
			}
			return listbuild.NewSegments(listbuild.SegmentsConfig{Prefix: r.prefix}, client, zap.NewNop(), nil), nil
		},
	}, r.Control)
	r.must(from.Start(bounded(t)))
	out := &replica{api: apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) {
		d.Routes, d.Logger = []api.Routes{from.Routes}, zap.NewNop()
	})}
	out.http = httptest.NewServer(out.api.Handler())
	out.url = out.http.URL
	t.Cleanup(func() {
		out.stop()
		r.must(from.Stop(bounded(t)))
	})
	return out
}

func (r *replica) stop() {
	r.api.Drain()
	r.http.Close()
}

// apart has the segments on a server of their own.
func (r *rig) apart(redis *redistest.Target) *rig {
	r.t.Helper()
	r.data, r.server = redis.Client(r.t), "data"
	r.must(r.PutServer(bounded(r.t), lists.Server{Name: "data", Addresses: []string{redis.URL()}}))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// open is a client with the lists of a rig; change may change its configuration.
func (r *rig) open(change ...func(*Config)) *Client {
	r.t.Helper()
	cfg := Config{RedisURL: r.url, KeyPrefix: r.prefix, Deadline: 5 * time.Second}
	if r.replica != "" {
		cfg.RedisURL, cfg.URL, cfg.Token = "", r.replica, "acme-token"
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Open(cfg)
	r.must(err)
	r.t.Cleanup(func() { r.must(c.Close(bounded(r.t))) })
	return c
}

func (r *rig) create(list string, s lists.Spec) {
	r.t.Helper()
	s.Server = r.server
	_, err := r.Create(bounded(r.t), list, s)
	r.must(err)
}

var nobody = lists.By{Author: "test"}

// build makes a version of the entries, in segments of about 8.
func (r *rig) build(list string, entries map[string]int64) lists.Version {
	r.t.Helper()
	ctx := bounded(r.t)
	op, err := r.Begin(ctx, list, lists.Begin{Kind: lists.OpImport, Holder: "test", Serving: lists.AnyVersion, By: nobody})
	r.must(err)
	head, err := r.Head(ctx, list)
	r.must(err)
	var random [16]byte
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	v := lists.Version{
		Number: op.Number, Build: hex.EncodeToString(random[:]), Server: head.Server, Segments: uint32(len(entries)/8 + 1),
		Count: int64(len(entries)), Filter: head.Filter, BlockBits: 1, FilterBytes: 1,
	}
	segments := make(map[uint32][]string)
	for i := range v.Segments {
		segments[i] = nil
	}
	keys := make([][]uint64, 2)
	for id, expires := range entries {
		h := form.Sum(head.Seed, id)
		text := ""
		if expires != 0 {
			text = strconv.FormatInt(expires, 10)
		}
		s := form.Segment(h, v.Segments)
		segments[s] = append(segments[s], id, text)
		keys[form.Block(h, 1)] = append(keys[form.Block(h, 1)], h)
	}
	var cmds rueidis.Commands
	for i, pairs := range segments {
		cmd := r.data.B().Hset().Key(lists.SegmentKey(r.prefix, list, v.Number, i)).FieldValue().FieldValue("", fmt.Sprintf("%s %d", v.Build, len(pairs)/2))
		for ; len(pairs) > 0; pairs = pairs[2:] {
			cmd = cmd.FieldValue(pairs[0], pairs[1])
		}
		cmds = append(cmds, cmd.Build())
	}
	if head.Filter == filter.None {
		v.BlockBits, v.FilterBytes = 0, 0
	} else {
		v.FilterBytes = 0
		for i := range keys {
			var b filter.Builder
			block, err := b.Build(head.Filter, keys[i])
			r.must(err)
			wire := block.Append(nil, head.Filter, v.Build, uint32(i), len(keys[i]))
			v.FilterBytes += int64(len(wire))
			cmds = append(cmds, r.data.B().Set().Key(lists.BlockKey(r.prefix, list, v.Number, uint32(i))).Value(rueidis.BinaryString(wire)).Build())
		}
	}
	for _, result := range r.data.DoMulti(ctx, cmds...) {
		r.must(result.Error())
	}
	_, err = r.Done(ctx, list, op, v)
	r.must(err)
	return v
}

// beginSwitch begins a switch to a version, and has clients load it.
func (r *rig) beginSwitch(list string, number int64) lists.Operation {
	r.t.Helper()
	ctx := bounded(r.t)
	op, err := r.Begin(ctx, list, lists.Begin{Kind: lists.OpSwitch, Number: number, Holder: "test", Serving: lists.AnyVersion, By: nobody})
	r.must(err)
	_, err = r.Prepare(ctx, list, op)
	r.must(err)
	return op
}

func (r *rig) endSwitch(list string, op lists.Operation) {
	r.t.Helper()
	_, err := r.Switch(bounded(r.t), list, op, lists.AnyVersion)
	r.must(err)
}

// publish makes a version of the entries, and switches to it.
func (r *rig) publish(list string, entries map[string]int64) lists.Version {
	r.t.Helper()
	v := r.build(list, entries)
	r.endSwitch(list, r.beginSwitch(list, v.Number))
	return v
}

func (r *rig) edit(list string, changes ...lists.Change) (revision int64) {
	r.t.Helper()
	revision, err := r.Edit(bounded(r.t), list, lists.EditRequest{Changes: changes, By: nobody})
	r.must(err)
	return revision
}

func add(id string) lists.Change  { return lists.Change{Entry: lists.Entry{ID: id}} }
func drop(id string) lists.Change { return lists.Change{Entry: lists.Entry{ID: id}, Remove: true} }

// entriesOf are ids that never expire.
func entriesOf(ids ...string) map[string]int64 {
	out := make(map[string]int64, len(ids))
	for _, id := range ids {
		out[id] = 0
	}
	return out
}

// await waits until a list stands as wanted.
func (r *rig) await(l *List, what string, is func(Status) bool) {
	r.t.Helper()
	done := make(chan struct{})
	stop := l.OnChange(func(s Status) {
		if is(s) {
			select {
			case <-done:
			default:
				close(done)
			}
		}
	})
	defer stop()
	waittest.Receive(r.t, what, done, func() any { s := l.Status(); return fmt.Sprint(s.Reason, s.State, s.Version, s.Revision, s.Loaded) })
}

func (r *rig) ready(l *List) {
	r.t.Helper()
	r.must(l.WaitReady(bounded(r.t)))
}

// want checks the verdict, source and reason of an answer.
func want(t testing.TB, a Answer, verdict Verdict, source Source, reason Reason) {
	t.Helper()
	if a.Verdict != verdict || a.Source != source || a.Reason != reason {
		t.Errorf("%s from %s (%s), want %s from %s (%s): %+v", a.Verdict, a.Source, a.Reason, verdict, source, reason, a)
	}
}
