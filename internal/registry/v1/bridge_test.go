package v1

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const (
	asr = "asr"
	// interval is that of copies in tests: they are late after two, and silent after three.
	interval = 300 * time.Millisecond
)

// The bridge has the rights of a replica in Redis, and the tests those of the default user.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, registry.Access, Access) }

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

// old is a provider and a consumer of the first version, as its design has them.
type old struct {
	t      *testing.T
	client rueidis.Client
	prefix string
}

func (o *old) do(args ...string) rueidis.RedisResult {
	o.t.Helper()
	ctx := waittest.Context(o.t)
	r := o.client.Do(ctx, o.client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		o.t.Fatalf("%v: %v; want no error or rueidis.IsRedisNil(err)", args, err)
	}
	return r
}

// register has one HSET for each field, as the first version has. The clock of the provider is
// wrong by a day.
func (o *old) register(id, port string) {
	o.t.Helper()
	key := o.prefix + ":services:" + asr + ":" + id
	for _, f := range [][2]string{
		{"host", "192.168.1.100"},
		{"port", port},
		{"healthy", "true"},
		{"metadata", `{"version":"1.0.0","region":"us-east","canary":true}`},
		{"metrics", `{"cpu":45.5,"memory":2048,"qps":1000}`},
	} {
		o.do("HSET", key, f[0], f[1])
	}
	o.do("SADD", o.prefix+":service_instances:"+asr, id)
	o.beat(id)
}

func (o *old) beat(id string) {
	o.t.Helper()
	o.do("ZADD", o.prefix+":heartbeat:"+asr, fmt.Sprint(time.Now().Add(-24*time.Hour).UnixMilli()), id)
}

func (o *old) deregister(id string) {
	o.t.Helper()
	o.do("SREM", o.prefix+":service_instances:"+asr, id)
	o.do("ZREM", o.prefix+":heartbeat:"+asr, id)
	o.do("DEL", o.prefix+":services:"+asr+":"+id)
}

// discover is the old consumer: the set, and a hash each.
func (o *old) discover() map[string]map[string]string {
	o.t.Helper()
	ids, err := o.do("SMEMBERS", o.prefix+":service_instances:"+asr).AsStrSlice()
	if err != nil {
		o.t.Fatal(err)
	}
	out := make(map[string]map[string]string)
	for _, id := range ids {
		if out[id], err = o.do("HGETALL", o.prefix+":services:"+asr+":"+id).AsStrMap(); err != nil {
			o.t.Fatal(err)
		}
	}
	return out
}

func (o *old) score(id string) string {
	o.t.Helper()
	s, _ := o.do("ZSCORE", o.prefix+":heartbeat:"+asr, id).ToString()
	return s
}

// rig is both versions on one Redis.
type rig struct {
	*old
	redis    *redistest.Target
	prefix   string
	store    *registry.Store
	consumer *registry.Consumer
	provider *registry.Provider
}

func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		test(t, newRig(t, redis))
	})
}

func newRig(t *testing.T, redis *redistest.Target) *rig {
	t.Helper()
	log, prefix := zaptest.NewLogger(t), redis.Prefix(t)
	r := &rig{old: &old{t, redis.Client(t), prefix + ":old"}, redis: redis, prefix: prefix}
	r.store = registry.NewStore(redis.RoleClient(t), prefix, redis.IsCluster(), log)
	var err error
	if r.consumer, err = registry.NewConsumer(registry.ConsumerOptions{RedisURL: redis.AdminURL(), KeyPrefix: prefix, Timeout: 2 * interval, Logger: log}); err != nil {
		t.Fatal(err)
	}
	admin := registry.NewStore(redis.Client(t), prefix, redis.IsCluster(), log)
	r.consumer.StartOn(admin)
	r.provider, err = registry.NewProviderOn(admin, registry.Options{KeyPrefix: prefix, StopPause: -1, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.provider.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := waittest.Context(t)
		if err := errors.Join(r.provider.Stop(ctx), r.consumer.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return r
}

// bridge is that of one replica among all.
func (r *rig) bridge(self string, writeBack bool, all ...string) *Bridge {
	r.t.Helper()
	b := New(Config{
		Self: self, KeyPrefix: r.old.prefix, Prefix: r.prefix, WriteBack: writeBack,
		Every: 20 * time.Millisecond, Find: 50 * time.Millisecond, Interval: interval, Beat: 50 * time.Millisecond,
	}, r.redis.RoleClient(r.t), r.store, zaptest.NewLogger(r.t))
	b.SetReplicas(all)
	if err := b.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { r.end(b) })
	return b
}

func (r *rig) end(b *Bridge) {
	ctx := waittest.Context(r.t)
	if err := b.Stop(ctx); err != nil {
		r.t.Error(err)
	}
}

// beating has providers of the first version beat until the function that it returns is called.
func (r *rig) beating(ids ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			for _, id := range ids {
				score := float64(time.Now().Add(-24*time.Hour).UnixMilli() + int64(n))
				_ = r.client.Do(ctx, r.client.B().Zadd().Key(r.old.prefix+":heartbeat:"+asr).ScoreMember().ScoreMember(score, id).Build()).Error()
			}
			select {
			case <-ctx.Done():
			case <-time.After(interval / 4):
			}
		}
	}()
	stop = func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) await(what string, cond func() bool) {
	r.t.Helper()
	waittest.Until(r.t, what, cond)
}

// healthy are the ids that a consumer of the second version gets.
func (r *rig) healthy() (ids []string) {
	r.t.Helper()
	list, err := r.consumer.HealthyInstances(r.t.Context(), asr)
	if err != nil {
		r.t.Fatal(err)
	}
	if list.Last {
		return nil
	}
	for _, in := range list.Instances {
		ids = append(ids, in.ID)
	}
	return ids
}

func (r *rig) awaitHealthy(ids ...string) {
	r.t.Helper()
	r.await(fmt.Sprint("healthy ", ids), func() bool { return slices.Equal(r.healthy(), ids) })
}

// gone reports whether the second version has no such instance any more.
func (r *rig) gone(id string) bool {
	r.t.Helper()
	_, _, err := r.store.Instance(r.t.Context(), asr, id)
	return freeslot.CodeOf(err) == freeslot.CodeNotFound
}

// cleanup makes one call of the cleanup, for await: the next one follows if a busy machine takes
// longer than a call may.
func (r *rig) cleanup() {
	r.t.Helper()
	if _, err := r.store.Cleanup(r.t.Context(), asr); err != nil {
		r.t.Log(err)
	}
}

// TestCopies: a consumer sees instances of the first version with labels and metrics while they
// beat, whatever their clock says; one that deregisters or dies goes, and a dead one does not come.
func TestCopies(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.register("a", "8080")
		r.register("b", "8081")
		r.register("dead", "8082")
		r.bridge("one", false, "one")
		stopA := r.beating("a")
		r.beating("b")
		r.awaitHealthy("a", "b")
		d, _, err := r.store.Instance(t.Context(), asr, "a")
		if err != nil {
			t.Fatal(err)
		}
		if d.Origin != "v1" || d.Host != "192.168.1.100" || d.Port != 8080 || d.Metadata["region"] != "us-east" || d.Metadata["canary"] != "true" ||
			string(d.Metrics) != `{"cpu":45.5,"memory":2048,"qps":1000}` {
			t.Errorf("copied %+v", d)
		}
		r.register("new", "8083")
		stopNew := r.beating("new")
		r.awaitHealthy("a", "b", "new")
		stopNew()
		r.deregister("new")
		r.await("it goes with its id", func() bool { return r.gone("new") })
		stopA()
		r.awaitHealthy("b")
		if err := r.store.SetCleanup(t.Context(), asr, new(time.Second), new(200*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		r.await("cleanup removes the dead one", func() bool {
			r.cleanup()
			return r.gone("a")
		})
		// A message of the first version says nothing of what has changed: the list stays.
		for _, text := range []string{"removed", `{"serviceName":"asr","changeType":"removed","instances":["b"],"timestamp":"now"}`} {
			r.do("PUBLISH", r.prefix+":service_change:"+asr, text)
		}
		r.register("c", "8084")
		r.beating("c")
		r.awaitHealthy("b", "c")
	})
}

// TestHeld: an id that a provider of the second version holds is not taken over, and a provider
// that is upgraded gets its id from the copy.
func TestHeld(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		put := func(id string, port int) {
			in := registry.Registration{Service: asr, ID: id, Host: "192.168.1.100", Port: port, Interval: interval}
			if err := r.provider.Register(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		put("mine", 9000)
		r.register("mine", "8080")
		r.register("other", "8081")
		r.bridge("one", true, "one")
		r.beating("mine", "other")
		r.awaitHealthy("mine", "other")
		put("other", 8081)
		for _, id := range []string{"mine", "other"} {
			r.await("the provider's own "+id, func() bool {
				d, _, err := r.store.Instance(t.Context(), asr, id)
				return err == nil && d.Origin == ""
			})
		}
		if got := r.discover()["mine"]; got[originField] != "" || got["port"] != "8080" {
			t.Errorf("the bridge wrote over what a provider of the first version has: %v", got)
		}
	})
}

// TestWriteBack: an old consumer sees instances of the second version, as long as they are there,
// and the bridge does not copy what it wrote.
func TestWriteBack(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		in := registry.Registration{Service: asr, ID: "n", Host: "10.0.0.7", Port: 9001, Interval: interval, Metadata: map[string]string{"zone": "z"}}
		if err := r.provider.Register(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		first := r.bridge("one", true, "one")
		r.await("an old consumer sees it", func() bool { return r.discover()["n"]["host"] == "10.0.0.7" })
		got := r.discover()["n"]
		if got["port"] != "9001" || got["healthy"] != "true" || got["metadata"] != `{"zone":"z"}` || got[originField] != originV2 {
			t.Errorf("written %v", got)
		}
		before := r.score("n")
		r.await("its score moves", func() bool { return r.score("n") != before })
		if d, _, err := r.store.Instance(t.Context(), asr, "n"); err != nil || d.Origin != "" {
			t.Errorf(`%+v, %v; want no error, d.Origin == ""`, d, err)
		}
		// Its replica dies, the instance goes, and another replica removes what is left.
		r.end(first)
		if err := r.provider.Deregister(t.Context(), asr, "n"); err != nil {
			t.Fatal(err)
		}
		r.bridge("two", true, "two")
		r.await("it is gone", func() bool { return len(r.discover()) == 0 && r.score("n") == "" })
	})
}

// TestDeath: the score of an instance of the second version stands once its provider is dead, and
// the record goes when cleanup has removed the instance.
func TestDeath(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		log, client := zaptest.NewLogger(t), r.redis.Client(t)
		p, err := registry.NewProviderOn(registry.NewStore(client, r.prefix, r.redis.IsCluster(), log), registry.Options{KeyPrefix: r.prefix, StopPause: -1, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // Redis is out of its reach
			_ = p.Stop(ctx)
		})
		if err := p.Register(t.Context(), registry.Registration{Service: asr, ID: "n", Host: "10.0.0.7", Port: 9001, Interval: interval}); err != nil {
			t.Fatal(err)
		}
		r.bridge("one", true, "one")
		r.await("an old consumer sees it", func() bool { return r.score("n") != "" })
		client.Close()
		last, since := r.score("n"), time.Now()
		r.await("its score stands", func() bool {
			if now := r.score("n"); now != last {
				last, since = now, time.Now()
			}
			return time.Since(since) > 2*interval
		})
		if err := r.store.SetCleanup(t.Context(), asr, new(time.Second), new(200*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		r.await("it is gone", func() bool {
			r.cleanup()
			return len(r.discover()) == 0
		})
	})
}

// TestTakeover: of two replicas one follows a service; when it dies the other one goes on, and
// removes the copy of an instance that has left meanwhile.
func TestTakeover(t *testing.T) {
	onBoth(t, func(_ *testing.T, r *rig) {
		r.register("a", "8080")
		r.register("b", "8081")
		r.beating("a", "b")
		all := []string{"one", "two"}
		bridges := map[string]*Bridge{"one": r.bridge("one", false, all...), "two": r.bridge("two", false, all...)}
		r.awaitHealthy("a", "b")
		follows := func(name string) bool { return slices.Contains(bridges[name].own(nil), asr) }
		r.await("both search", func() bool { return follows("one") != follows("two") })
		dies, lives := "one", "two"
		if follows("two") {
			dies, lives = lives, dies
		}
		r.end(bridges[dies])
		r.deregister("b")
		bridges[lives].SetReplicas([]string{lives})
		r.awaitHealthy("a")
		r.await("no copy is left of b", func() bool { return r.gone("b") })
	})
}

// TestLastLeaves: the copy of the last instance of a service goes with it, also when a search, which
// does not find the service any more, comes before the next look. Then the service is forgotten.
func TestLastLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		b := New(Config{Self: "one", KeyPrefix: r.old.prefix, Prefix: r.prefix}, r.redis.RoleClient(t), r.store, zaptest.NewLogger(t)) // it never starts
		b.SetReplicas([]string{"one"})
		following := make(map[string]*service)
		r.register("a", "8080")
		b.find()
		b.round(following)
		r.do("ZADD", r.old.prefix+":heartbeat:"+asr, "1", "a")
		b.round(following)
		if d, _, err := r.store.Instance(t.Context(), asr, "a"); err != nil || d.Origin != registry.OriginV1 {
			t.Fatalf("no copy: %+v, %v", d, err)
		}
		r.deregister("a")
		b.find()
		b.round(following)
		if d, _, err := r.store.Instance(t.Context(), asr, "a"); err == nil {
			t.Errorf("the copy is left: %+v", d)
		}
		for range 2 { // one look sees that nothing is left
			b.round(following)
		}
		if len(following) > 0 {
			t.Error("a service without instances is followed")
		}
	})
}

// TestMigration: the status counts, and the end is refused while providers beat; then it removes
// the copies and the keys.
func TestMigration(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.register("a", "8080")
		r.register("broken", "none")
		stop := r.beating("a", "broken")
		b := r.bridge("one", false, "one")
		r.awaitHealthy("a")
		status, err := b.Status(t.Context())
		if err != nil || len(status) != 1 || status[0].Copied != 1 || status[0].V1Only != 1 || status[0].V2 != 0 || status[0].SilentMS < 0 {
			t.Fatalf("status %+v, %v", status, err)
		}
		refused := func(want string) bool {
			_, err := b.Finish(t.Context())
			var coded *freeslot.Error
			return errors.As(err, &coded) && coded.Code == freeslot.CodeConflict && strings.Contains(coded.Message, want)
		}
		if !refused(asr) {
			t.Error("finished while providers beat")
		}
		writing := New(Config{WriteBack: true}, r.redis.RoleClient(t), r.store, zaptest.NewLogger(t)) // it never starts
		if _, err := writing.Finish(t.Context()); err == nil {
			t.Error("finished while instances are written back")
		}
		stop()
		r.await("finished", func() bool { n, err := b.Finish(t.Context()); return err == nil && n == 1 })
		if left := r.discover(); len(left) > 0 || r.score("a") != "" {
			t.Errorf("left %v", left)
		}
		for _, id := range []string{"a", "broken"} {
			if n, _ := r.do("EXISTS", r.old.prefix+":services:"+asr+":"+id).AsInt64(); n != 0 {
				t.Errorf("the record of %s is left", id)
			}
		}
		r.awaitHealthy()
		if _, _, err := r.store.Instance(t.Context(), asr, "a"); err == nil {
			t.Error("the copy of a is left")
		}
	})
}

// TestOff: the routes of a replica without the bridge say which key is off.
func TestOff(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) { d.Routes = []api.Routes{routesOf(nil)} })
	for token, want := range map[string]string{"root-token": "registry.v1.enabled is off", "acme-token": "get-migration is for viewer, operator, admin"} {
		if got := server.Do(t, "GET", Path, "", "Authorization", "Bearer "+token); !strings.Contains(got.Text, want) {
			t.Error(got.Status, got.Text)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	if got := newKeys("", "scheduler").instance("asr", "a"); got != "services:asr:a" {
		t.Error(got)
	}
	k := newKeys("myapp", "scheduler")
	if got := k.members("asr") + " " + k.scores("asr") + " " + k.change("asr"); got != "myapp:service_instances:asr myapp:heartbeat:asr myapp:service_change:asr" {
		t.Error(got)
	}
	if got := glob(`a*[b]\`); got != `a\*\[b\]\\` {
		t.Error(got)
	}
}
