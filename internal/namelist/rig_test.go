package namelist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// rig is one control, and a client that sees and changes all of it.
type rig struct {
	*Control
	t      testing.TB
	redis  *redistest.Target
	client rueidis.Client
}

func newRig(t testing.TB, redis *redistest.Target) *rig {
	t.Helper()
	return &rig{
		Control: NewControl(redis.RoleClient(t), redis.Prefix(t), redis.IsCluster(), zaptest.NewLogger(t), nil),
		t:       t, redis: redis, client: redis.Client(t),
	}
}

// onBoth runs a test on a server and on a cluster.
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
	m, err := r.client.Do(
		bounded(r.t), r.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build(),
	).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%v: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
	return m
}

func (r *rig) hash(key string) map[string]string {
	r.t.Helper()
	m, err := r.client.Do(bounded(r.t), r.client.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// keysOf are all keys of a list with what they hold, and its place in the index.
func (r *rig) keysOf(list string) string {
	r.t.Helper()
	edits := r.do("XRANGE", r.k.edits(list), "-", "+")
	return fmt.Sprint(
		r.hash(r.k.record(list)), r.hash(r.k.versions(list)), edits.String(), r.hash(r.k.staged(list)),
		r.hash(r.k.index())[list],
	)
}

// unchanged wants that f writes nothing.
func (r *rig) unchanged(list, what string, f func()) {
	r.t.Helper()
	before := r.keysOf(list)
	f()
	if after := r.keysOf(list); after != before {
		r.t.Errorf("%s has changed\n%s\nto\n%s", what, before, after)
	}
}

// pass makes a list older, as if that time had passed.
func (r *rig) pass(list string, d time.Duration) {
	r.t.Helper()
	for _, field := range []string{"since", "lease"} {
		if at, _ := strconv.ParseInt(r.hash(r.k.record(list))[field], 10, 64); at != 0 {
			r.do("HSET", r.k.record(list), field, number(at-d.Milliseconds()))
		}
	}
	for _, key := range []string{r.k.clients(list), r.k.readers(list)} {
		for client, text := range r.hash(key) {
			var at int64
			var rest string
			if _, err := fmt.Sscanf(text, "%d %s", &at, &rest); err != nil {
				r.t.Fatal(err)
			}
			r.do("HSET", key, client, fmt.Sprint(at-d.Milliseconds(), " ", rest))
		}
	}
}

// is wants one code of an error, "" for none.
func is(t testing.TB, what string, err error, code freeslot.Code) {
	t.Helper()
	if got := freeslot.CodeOf(err); got != code {
		t.Fatalf("%s: %v, expected %q", what, err, code)
	}
}

// ok fails on an error, and returns the value.
func ok[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var ada = By{Author: "ada", Note: "test"}

func (r *rig) create(list string) Head {
	r.t.Helper()
	return ok[Head](r.t)(r.Create(bounded(r.t), list, Spec{}))
}

func (r *rig) begin(list string, kind OpKind, target int64) Operation {
	r.t.Helper()
	return ok[Operation](r.t)(r.Begin(
		bounded(r.t), list, Begin{Kind: kind, Number: target, Holder: "r1", Serving: AnyVersion, By: ada},
	))
}

// build puts a version by an operation.
func (r *rig) build(list string, kind OpKind) int64 {
	r.t.Helper()
	op := r.begin(list, kind, 0)
	ok[Head](r.t)(r.Done(bounded(r.t), list, op, Version{Number: op.Number, Build: random128(), Segments: 1}))
	return op.Number
}

func (r *rig) serve(list string, n int64) Head {
	r.t.Helper()
	return ok[Head](r.t)(r.Switch(bounded(r.t), list, r.begin(list, OpSwitch, n), AnyVersion))
}

// active makes a list that serves its first version.
func (r *rig) active(list string) Head {
	r.t.Helper()
	r.create(list)
	return r.serve(list, r.build(list, OpImport))
}

func add(ids ...string) (out []Change) {
	for _, id := range ids {
		out = append(out, Change{Entry: Entry{ID: id}})
	}
	return out
}

func remove(ids ...string) []Change {
	out := add(ids...)
	for i := range out {
		out[i].Remove = true
	}
	return out
}

// many are n entries to add.
func many(n int) (out []Change) {
	for i := range n {
		out = append(out, add(strconv.Itoa(i))...)
	}
	return out
}

func (r *rig) edit(list string, changes ...Change) int64 {
	r.t.Helper()
	return ok[int64](r.t)(r.Edit(bounded(r.t), list, EditRequest{Changes: changes}))
}

// hear delivers what is published about a list from now on.
func (r *rig) hear(list string) <-chan Event {
	r.t.Helper()
	out, ready := make(chan Event, 10_000), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(rueidis.WithOnSubscriptionHook(
		context.Background(), func(rueidis.PubSubSubscription) { ready <- struct{}{} },
	))
	done := make(chan struct{})
	channel := Channel(r.Layout(), list)
	subscribe := r.client.B().Subscribe().Channel(channel).Build()
	if r.redis.IsCluster() {
		subscribe = r.client.B().Ssubscribe().Channel(channel).Build()
	}
	go func() {
		defer close(done)
		err := r.client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) {
			e, err := DecodeEvent(list, m.Message)
			if err != nil {
				r.t.Errorf("%s: %v; want no error", m.Message, err)
			}
			out <- e
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	receive(r.t, ready)
	return out
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	return waittest.Receive(t, "a value", c)
}

// Staged returns the entries of the list's edit session, in no order.
func (c *Control) Staged(ctx context.Context, list string) ([]Change, error) {
	all, err := c.runner.Do(ctx, "lists_staged", c.runner.B().Hvals().Key(c.k.staged(list)).Build()).AsStrSlice()
	if err != nil {
		return nil, fault("staged entries of", list, err)
	}
	out := make([]Change, len(all))
	for i, text := range all {
		if err := json.Unmarshal([]byte(text), &out[i]); err != nil {
			return nil, fault("staged entries of", list, err)
		}
	}
	return out, nil
}
