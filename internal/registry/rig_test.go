package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func bounded(t testing.TB) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// rig is one registry, and a client that sees and changes all of it.
type rig struct {
	*conn
	t      testing.TB
	redis  *redistest.Target
	prefix string
	client rueidis.Client
}

func newRig(t testing.TB, redis *redistest.Target) *rig {
	t.Helper()
	prefix := redis.Prefix(t)
	return &rig{
		conn: newConn(prefix, redis.RoleClient(t), redis.IsCluster(), zaptest.NewLogger(t), nil),
		t:    t, redis: redis, prefix: prefix, client: redis.Client(t),
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
	cmd := r.client.B().Arbitrary(args[0])
	if len(args) > 1 {
		cmd = cmd.Keys(args[1]).Args(args[2:]...)
	}
	m, err := r.client.Do(bounded(r.t), cmd.Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		r.t.Fatalf("%v: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
	return m
}

func (r *rig) keys(service string) keys {
	_, k := r.of(service)
	return k
}

func (r *rig) hash(key string) map[string]string {
	r.t.Helper()
	m, err := r.client.Do(bounded(r.t), r.client.B().Hgetall().Key(key).Build()).AsStrMap()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) instance(service, id string) map[string]string {
	r.t.Helper()
	return r.hash(r.keys(service).instance(service, id))
}

func (r *rig) record(service string) map[string]string {
	r.t.Helper()
	return r.hash(r.keys(service).record(service))
}

// scores are of a zset; infinity is -1.
func (r *rig) scores(key string) map[string]int64 {
	r.t.Helper()
	list, err := r.client.Do(bounded(r.t), r.client.B().Zrange().Key(key).Min("0").Max("-1").Withscores().Build()).AsZScores()
	if err != nil {
		r.t.Fatal(err)
	}
	out := make(map[string]int64)
	for _, z := range list {
		out[z.Member] = -1
		if z.Score < 1e18 {
			out[z.Member] = int64(z.Score)
		}
	}
	return out
}

func (r *rig) beats(service string) map[string]int64 {
	r.t.Helper()
	return r.scores(r.keys(service).heartbeats(service))
}

func (r *rig) listed(service string) bool {
	r.t.Helper()
	m := r.do("SISMEMBER", r.keys(service).services(), service)
	n, err := m.AsInt64()
	if err != nil {
		r.t.Fatal(err)
	}
	return n == 1
}

// now is Redis' clock for a service.
func (r *rig) now(service string) int64 {
	r.t.Helper()
	m, err := r.client.Do(bounded(r.t), r.client.B().Eval().Script("local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)").Numkeys(1).Key(r.keys(service).record(service)).Build()).AsInt64()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// pass makes everything in a service older by d, as if that time had passed. Less than 0 is a clock
// that was put back.
func (r *rig) pass(service string, d time.Duration) {
	r.t.Helper()
	k, ms := r.keys(service), d.Milliseconds()
	for id, score := range r.beats(service) {
		if score >= 0 {
			r.do("ZADD", k.heartbeats(service), strconv.FormatInt(score-ms, 10), id)
		}
		for _, field := range []string{"failing_since", "checked_at", "registered", "heartbeat"} {
			if at, ok := r.instance(service, id)[field]; ok {
				r.do("HSET", k.instance(service, id), field, older(r.t, at, ms))
			}
		}
	}
	for field, at := range r.record(service) {
		switch field {
		case "cleaned", "grace", "guard_until", "guard_cut", "guard_done":
			r.do("HSET", k.record(service), field, older(r.t, at, ms))
		}
	}
	for id, text := range r.hash(k.overrides(service)) {
		var o Override
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			r.t.Fatal(err)
		}
		for _, at := range []*int64{&o.AtMS, &o.UntilMS, &o.GoneMS} {
			if *at != 0 {
				*at -= ms
			}
		}
		raw, err := json.Marshal(o)
		if err != nil {
			r.t.Fatal(err)
		}
		r.do("HSET", k.overrides(service), id, string(raw))
	}
}

func older(t testing.TB, at string, ms int64) string {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(n-ms, 10)
}

// clean is a cleanup that is let through.
func (r *rig) clean(service string) cleaned {
	r.t.Helper()
	if at := r.record(service)["cleaned"]; at != "" {
		every := int64(31_000)
		if limit := r.record(service)["limit"]; limit != "" {
			n, _ := strconv.ParseInt(limit, 10, 64)
			every = n/4 + 1
		}
		r.do("HSET", r.keys(service).record(service), "cleaned", strconv.FormatInt(r.now(service)-every, 10))
	}
	done, err := r.cleanup(bounded(r.t), service)
	if err != nil {
		r.t.Fatal(err)
	}
	return done
}

// event is one message of service_change.
type event struct {
	ServiceName, ChangeType string
	Instances               []string
	Timestamp, Revision     int64
	Stamp, Birth, Reason    string
	Entries                 []eventEntry
	ID                      string // of a message of service_metrics
	Metrics                 json.RawMessage
}

type eventEntry struct {
	ID       string
	Revision int64
	Fields   []string
	Override string
}

// hear delivers what is published on a channel from now on.
func (r *rig) hear(channel string) <-chan event {
	r.t.Helper()
	out, ready := make(chan event, 1000), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(rueidis.WithOnSubscriptionHook(context.Background(), func(rueidis.PubSubSubscription) { ready <- struct{}{} }))
	done := make(chan struct{})
	subscribe := r.client.B().Subscribe().Channel(channel).Build()
	if r.redis.IsCluster() {
		subscribe = r.client.B().Ssubscribe().Channel(channel).Build()
	}
	go func() {
		defer close(done)
		err := r.client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) {
			var e event
			if err := json.Unmarshal([]byte(m.Message), &e); err != nil {
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

// await polls what nothing signals.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, what, cond)
}

// registration is a plain one.
func registration(service, id string, change ...func(*Registration)) Registration {
	r := Registration{Service: service, ID: id, Host: "10.0.0.1", Port: 8080}
	for _, c := range change {
		c(&r)
	}
	return r.WithDefaults()
}

// item is a registration as register takes it.
func item(epoch, replaces string, reg Registration) registerItem {
	fields, _ := reg.fields()
	return registerItem{id: reg.ID, epoch: epoch, replaces: replaces, fields: fields}
}

// put registers and wants one code for all.
func (r *rig) put(service string, code int, items ...registerItem) []answer {
	r.t.Helper()
	got, err := r.register(bounded(r.t), service, false, items)
	if err != nil {
		r.t.Fatal(err)
	}
	for i, a := range got {
		if a.code != code {
			r.t.Fatalf("register %s: %+v, expected code %d", items[i].id, a, code)
		}
	}
	return got
}

// beat sends heartbeats and returns their codes as text.
func (r *rig) beat(service string, items ...beatItem) string {
	r.t.Helper()
	got, err := r.heartbeat(bounded(r.t), service, false, items)
	if err != nil {
		r.t.Fatal(err)
	}
	return codes(got)
}

func codes(answers []answer) string {
	var out []string
	for _, a := range answers {
		out = append(out, strconv.Itoa(a.code))
	}
	return strings.Join(out, " ")
}

func (r *rig) remove(service, reason string, items ...deregisterItem) []answer {
	r.t.Helper()
	got, err := r.deregister(bounded(r.t), service, reason, items)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// dump is all keys of the registry with what they hold.
func (r *rig) dump() string {
	r.t.Helper()
	var out []string
	for _, node := range r.client.Nodes() {
		for cursor, done := uint64(0), false; !done; done = cursor == 0 {
			e, err := node.Do(bounded(r.t), node.B().Scan().Cursor(cursor).Match(r.prefix+":*").Count(10_000).Build()).AsScanEntry()
			if err != nil {
				r.t.Fatal(err)
			}
			for _, key := range e.Elements {
				kind := r.do("TYPE", key)
				switch text, _ := kind.ToString(); text {
				case "hash":
					out = append(out, fmt.Sprint(key, sorted(r.hash(key))))
				case "zset":
					out = append(out, fmt.Sprint(key, sorted(r.scores(key))))
				default:
					out = append(out, key)
				}
			}
			cursor = e.Cursor
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n")
}

func sorted[V any](m map[string]V) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return out
}

// unchanged wants that f writes nothing.
func (r *rig) unchanged(what string, f func()) {
	r.t.Helper()
	before := r.dump()
	f()
	if after := r.dump(); after != before {
		r.t.Errorf("%s has changed\n%s\nto\n%s", what, before, after)
	}
}

func parseOverride(t testing.TB, text string) *Override {
	t.Helper()
	var o Override
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%q: %v; want no error", text, err)
	}
	return &o
}
