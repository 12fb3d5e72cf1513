package registry

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const quick = MinHeartbeatInterval

// provider is one that beats quickly, and is stopped at the end of the test.
func (r *rig) provider(change ...func(*Options)) *Provider {
	r.t.Helper()
	opts := Options{
		RedisURL: r.redis.URL(), KeyPrefix: r.prefix, Heartbeat: heartbeat.Policy{HeartbeatInterval: quick}, StopPause: -1, Logger: zaptest.NewLogger(r.t),
	}
	for _, c := range change {
		c(&opts)
	}
	p, err := NewProvider(opts)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Start(bounded(r.t)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := p.Stop(bounded(r.t)); err != nil && !r.t.Failed() {
			r.t.Errorf("stop: %v", err)
		}
	})
	return p
}

func (r *rig) registers(p *Provider, reg Registration) {
	r.t.Helper()
	waittest.Until(r.t, "the registration of "+reg.ID, func() bool {
		err := p.Register(bounded(r.t), reg)
		if err != nil && freeslot.CodeOf(err) != freeslot.CodeUnavailable { // else a call that a busy machine broke off
			r.t.Fatal(err)
		}
		return err == nil
	})
}

// mine is a registration that a provider fills in.
func mine(id string) Registration {
	return Registration{Service: svc, ID: id, Host: "10.0.0.1", Port: 8080}
}

// beats waits for a beat of an instance from now on.
func (r *rig) beaten(id string) {
	r.t.Helper()
	after := r.now(svc)
	await(r.t, "a beat of "+id, func() bool { return r.beats(svc)[id] > after })
}

func TestProvider(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.provider(func(o *Options) { o.StopPause = quick })
		if !p.Running() {
			t.Error("it is not running")
		}
		heard := r.hear(r.keys(svc).change(svc))
		r.registers(p, mine("a"))
		r.registers(p, mine("b"))
		lasting := mine("p")
		lasting.Persistent = true
		r.registers(p, lasting)
		for range 3 {
			receive(t, heard)
		}
		r.beaten("a")
		r.beaten("b")
		status := p.Status()
		if len(status) != 3 || !status[0].Registered || status[0].ID != "a" || status[0].LastBeat.IsZero() || status[0].Err != nil {
			t.Errorf(`%+v; want len(status) == 3, status[0].Registered, status[0].ID == "a", not status[0].LastBeat.IsZero(), no error`, status)
		}
		if err := p.Heartbeat(bounded(t), svc, "a"); err != nil {
			t.Error(err)
		}
		if err := p.Heartbeat(bounded(t), svc, "none"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		changed := mine("a")
		changed.Weight = new(2.0)
		r.registers(p, changed)
		if e := receive(t, heard); e.Reason != "updated" || r.instance(svc, "a")["weight"] != "2" {
			t.Errorf(`%+v; want e.Reason == "updated", r.instance(svc, "a")["weight"] == "2"`, e)
		}
		changed.Interval = 2 * quick
		r.registers(p, changed)
		if e := receive(t, heard); e.Reason != "updated" || r.instance(svc, "a")["interval"] != "200" {
			t.Errorf(`%+v; want e.Reason == "updated", r.instance(svc, "a")["interval"] == "200"`, e)
		}
		if err := p.Deregister(bounded(t), svc, "b"); err != nil {
			t.Error(err)
		}
		if e := receive(t, heard); e.Reason != "deregistered" || len(p.Status()) != 2 {
			t.Errorf(`%+v; want e.Reason == "deregistered", len(p.Status()) == 2`, e)
		}
		if err := p.Deregister(bounded(t), svc, "b"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		// Stop drains, and ends.
		if err := p.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
		if e := receive(t, heard); e.Reason != "updated" || pairs(e.Entries[0].Fields)["draining"] != "true" {
			t.Errorf(`%+v; want e.Reason == "updated", pairs(e.Entries[0].Fields)["draining"] == "true"`, e)
		}
		if e := receive(t, heard); e.Reason != "deregistered" || !slices.Equal(e.Instances, []string{"a"}) {
			t.Errorf(`%+v; want e.Reason == "deregistered", slices.Equal(e.Instances, []string{"a"})`, e)
		}
		if beats := r.beats(svc); len(beats) != 1 || beats["p"] != -1 || p.Running() {
			t.Errorf(`%v; want len(beats) == 1, beats["p"] == -1, not p.Running()`, beats)
		}
		for _, err := range []error{p.Register(bounded(t), mine("c")), p.Heartbeat(bounded(t), svc, "a"), p.Deregister(bounded(t), svc, "a"), p.Start(bounded(t))} {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		if err := p.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestProviderNotStarted(t *testing.T) {
	t.Parallel()
	p, err := NewProvider(Options{RedisURL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Register(bounded(t), mine("a b")); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("a bad id before the start: %v, expected invalid_argument", err)
	}
	if err := p.Register(bounded(t), mine("a")); !errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
	if _, err := p.HeartbeatAll(bounded(t)); !errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Start(ended); err == nil || p.Running() {
		t.Errorf("start: %v, expected the end of its context", err)
	}
	if err := p.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
	_, err = NewProvider(Options{RedisURL: "x", KeyPrefix: "{", Namespace: "a:b", Heartbeat: heartbeat.Policy{HeartbeatInterval: 1, MetadataGap: -1}})
	var found *freeslot.Error
	if !errors.As(err, &found) || len(found.Errors) != 5 {
		t.Error(err)
	}
}

// TestProviderHost: without a host it is the address towards Redis; loopback is for Redis on
// loopback.
func TestProviderHost(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.provider()
		r.registers(p, Registration{Service: svc, Port: 8080})
		if h := r.instance(svc, "127.0.0.1:8080"); h["host"] != "127.0.0.1" {
			t.Errorf(`%v, %+v; want h["host"] == "127.0.0.1"`, h, p.Status())
		}
		err := p.Register(bounded(t), Registration{Service: "a:b", Port: -1})
		var found *freeslot.Error
		if !errors.As(err, &found) || len(found.Errors) < 2 {
			t.Error(err)
		}
		far := r.providerOn(&elsewhere{Client: r.client})
		r.registers(far, mine("a"))
		loop := mine("a")
		loop.Host = "localhost"
		if err := far.Register(bounded(t), loop); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Error(err)
		}
	})
}

// providerOn is a provider on a client, stopped at the end of the test.
func (r *rig) providerOn(client rueidis.Client) *Provider {
	r.t.Helper()
	p, err := NewProviderOn(&Store{newConn(r.prefix, client, r.cluster, zaptest.NewLogger(r.t), nil)}, Options{StopPause: -1})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.Start(bounded(r.t)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := p.Stop(bounded(r.t)); err != nil {
			r.t.Error(err)
		}
	})
	return p
}

// TestProviderHostLater: an instance whose host cannot be found at first is kept.
func TestProviderHostLater(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		client := &astray{Client: r.client}
		p := r.providerOn(client)
		if err := p.Register(bounded(t), Registration{Service: svc, Port: 8080}); err == nil {
			t.Error("registered without a host")
		}
		if s := p.Status(); len(s) != 1 || s[0].ID != "{host}:8080" || s[0].Err == nil {
			t.Errorf(`%+v; want len(s) == 1, s[0].ID == "{host}:8080", an error`, s)
		}
		client.found.Store(true)
		await(t, "the instance", func() bool { return r.instance(svc, "127.0.0.1:8080")["host"] == "127.0.0.1" })
		client.found.Store(false) // what was found stays
		r.registers(p, Registration{Service: svc, Port: 8081})
	})
}

// astray is a client that does not know its servers until they are found.
type astray struct {
	rueidis.Client
	found atomic.Bool
}

func (a *astray) Nodes() map[string]rueidis.Client {
	if !a.found.Load() {
		return nil
	}
	return a.Client.Nodes()
}

// elsewhere is a client of a server on another machine.
type elsewhere struct{ rueidis.Client }

func (e *elsewhere) Nodes() map[string]rueidis.Client {
	return map[string]rueidis.Client{"192.0.2.1:6379": e.Client}
}

// TestProviderFlush: a provider registers again by itself whatever Redis has lost.
func TestProviderFlush(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	p := r.provider()
	for i := range 100 {
		r.registers(p, mine("i"+strconv.Itoa(i)))
	}
	for range 3 {
		r.do("FLUSHALL")
		await(t, "all instances", func() bool { return len(r.beats(svc)) == 100 })
		await(t, "the provider's knowledge", func() bool {
			return !slices.ContainsFunc(p.Status(), func(s InstanceStatus) bool { return !s.Registered })
		})
	}
	// And while Redis was away, with an empty one in its place.
	server.Kill()
	await(t, "failures", func() bool {
		return !slices.ContainsFunc(p.Status(), func(s InstanceStatus) bool { return s.Err == nil })
	})
	if err := p.Heartbeat(bounded(t), svc, "i1"); err == nil {
		t.Error("a heartbeat has arrived nowhere")
	}
	server.Restart()
	await(t, "all instances", func() bool { return len(r.beats(svc)) == 100 })
	await(t, "the end of failures", func() bool {
		return !slices.ContainsFunc(p.Status(), func(s InstanceStatus) bool { return s.Err != nil || !s.Registered })
	})
}

// TestProviderContent: what was changed behind its back, as by a failover, is sent again.
func TestProviderContent(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.provider()
		r.registers(p, mine("a"))
		r.do("HSET", r.keys(svc).instance(svc, "a"), "weight", "9", "content", "older")
		await(t, "the content", func() bool { return r.instance(svc, "a")["weight"] == "1" })
		// A half instance is made whole.
		r.do("DEL", r.keys(svc).instance(svc, "a"))
		await(t, "the instance", func() bool { return r.instance(svc, "a")["epoch"] == p.epoch })
		// One that was removed comes back.
		r.remove(svc, reasonOperator, deregisterItem{"a", ""})
		await(t, "the instance", func() bool { return r.beats(svc)["a"] > 0 })
	})
}

// TestProviderSuperseded: a newer provider from the same address takes the id over. The older one
// says so, and never fights.
func TestProviderSuperseded(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		reg := prometheus.NewRegistry()
		first := r.provider(func(o *Options) { o.Registerer = reg })
		r.registers(first, mine("a"))
		second := r.provider()
		heard := r.hear(r.keys(svc).change(svc))
		r.registers(second, mine("a"))
		if e := receive(t, heard); e.Reason != "replaced" {
			t.Errorf(`%+v; want e.Reason == "replaced"`, e)
		}
		await(t, "the end of the first", func() bool { return first.Status()[0].Holder != nil })
		s := first.Status()[0]
		if !errors.Is(s.Err, ErrSuperseded) || !s.Holder.Superseded || s.Holder.Epoch != second.epoch || s.Registered {
			t.Errorf("%+v", s)
		}
		if n := testutil.CollectAndCount(reg, "freeslot_registry_provider_instances"); n != 4 {
			t.Error(n)
		}
		if err := first.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, ErrSuperseded) {
			t.Error(err)
		}
		r.beaten("a")
		r.beaten("a")
		// Its stop leaves the other one alone.
		if err := first.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
		if h := r.instance(svc, "a"); h["epoch"] != second.epoch || r.record(svc)["revision"] != "2" {
			t.Errorf(`%v; want h["epoch"] == %v, r.record(svc)["revision"] == "2"`, h, second.epoch)
		}
	})
}

// TestSupersededNeverWrites: no call brings a superseded instance back, and none ends the newer one. Some providers
// know that they are superseded, and some do not yet.
func TestSupersededNeverWrites(t *testing.T) {
	changed := func(change func(*Registration)) Registration {
		r := mine("a")
		change(&r)
		return r
	}
	register := func(r Registration) func(*Provider) error {
		return func(p *Provider) error { return p.Register(bounded(t), r) }
	}
	deregister := func(p *Provider) error { return p.Deregister(bounded(t), svc, "a") }
	ways := map[string][]func(*Provider) error{
		"register":             {register(mine("a"))},
		"register as draining": {register(changed(func(r *Registration) { r.Draining = true }))},
		"another interval":     {register(changed(func(r *Registration) { r.Interval = time.Second }))},
		"persistent":           {register(changed(func(r *Registration) { r.Persistent = true }))},
		"another address":      {register(changed(func(r *Registration) { r.Host, r.Port = "10.0.0.77", 1 }))},
		"deregister":           {deregister},
		"deregister, register": {deregister, register(mine("a"))},
		"deregister twice":     {deregister, deregister},
		"heartbeat":            {func(p *Provider) error { return p.Heartbeat(bounded(t), svc, "a") }},
		"all heartbeats": {func(p *Provider) error {
			all, err := p.HeartbeatAll(bounded(t))
			if err != nil || len(all) != 1 {
				return fmt.Errorf("%v, %w", all, err)
			}
			return all[0].Err
		}},
	}
	onBoth(t, func(t *testing.T, r *rig) {
		for name, calls := range ways {
			for _, knows := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, knows %t", name, knows), func(t *testing.T) {
					seldom := func(o *Options) { o.Heartbeat.HeartbeatInterval = time.Minute }
					first, second := r.provider(seldom), r.provider(seldom)
					r.registers(first, mine("a"))
					r.registers(second, mine("a"))
					if knows {
						if err := first.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, ErrSuperseded) {
							t.Fatal(err)
						}
					}
					before := r.instance(svc, "a")
					for i, call := range calls {
						if err := call(first); !errors.Is(err, ErrSuperseded) {
							t.Errorf("call %d returned %v, expected that the instance is superseded", i, err)
						}
					}
					if s := first.Status(); len(s) != 1 || s[0].Holder == nil || !s[0].Holder.Superseded || s[0].Registered {
						t.Errorf("the status is %+v, expected that the instance is superseded", s)
					}
					if err := first.Stop(bounded(t)); err != nil {
						t.Error(err)
					}
					if diff := cmp.Diff(before, r.instance(svc, "a")); diff != "" || before["epoch"] != second.epoch {
						t.Errorf("the newer provider %s has lost its instance: %s", second.epoch, diff)
					}
					if err := second.Deregister(bounded(t), svc, "a"); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestSupersededStaysSo: an instance that does not know yet that it was superseded does not come back when the newer one
// is gone, however that has ended. A third provider can have the id.
func TestSupersededStaysSo(t *testing.T) {
	heartbeat := func(p *Provider) error {
		if err := p.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrSuperseded) {
			return err
		}
		await(t, "the end of the first", func() bool { return p.Status()[0].Holder != nil })
		return p.Status()[0].Err
	}
	again := func(p *Provider) error {
		if err := p.Deregister(bounded(t), svc, "a"); err != nil {
			return err
		}
		return p.Register(bounded(t), mine("a"))
	}
	onBoth(t, func(t *testing.T, r *rig) {
		k := r.keys(svc)
		ends := map[string]func(second *Provider){
			"deregisters": func(p *Provider) {
				if err := p.Deregister(bounded(t), svc, "a"); err != nil {
					t.Error(err)
				}
			},
			"stops": func(p *Provider) {
				if err := p.Stop(bounded(t)); err != nil {
					t.Error(err)
				}
			},
			"expires": func(*Provider) {
				r.do("ZADD", k.heartbeats(svc), "XX", strconv.FormatInt(r.now(svc)-4*MaxHeartbeatInterval.Milliseconds(), 10), "a")
				if done := r.clean(svc); done.removed != 1 {
					t.Errorf("%+v, expected one removed", done)
				}
			},
		}
		seldom := func(o *Options) { o.Heartbeat.HeartbeatInterval = MaxHeartbeatInterval }
		for end, ended := range ends {
			for name, call := range map[string]func(*Provider) error{"heartbeat": heartbeat, "deregister, register": again} {
				t.Run(end+", "+name, func(t *testing.T) {
					first, second := r.provider(seldom), r.provider(seldom)
					r.registers(first, mine("a"))
					r.registers(second, mine("a"))
					ended(second)
					r.unchanged("a superseded instance", func() {
						if err := call(first); !errors.Is(err, ErrSuperseded) {
							t.Errorf("%v, expected that the first one is superseded", err)
						}
					})
					third := r.provider(seldom)
					r.registers(third, mine("a"))
					if err := third.Deregister(bounded(t), svc, "a"); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestLaterLifeHolds: when Redis loses the instance, also a provider that has not heard yet that it was superseded
// registers again. The newer one takes its instance back, and stays.
func TestLaterLifeHolds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for name, host := range map[string]string{"same address": "10.0.0.1", "another address": "10.0.0.2"} {
			t.Run(name, func(t *testing.T) {
				seldom := func(o *Options) { o.Heartbeat.HeartbeatInterval = time.Minute }
				first, second := r.provider(seldom), r.provider(seldom)
				reg := func(host string) Registration {
					return Registration{Service: svc, ID: "a", Host: host, Port: 8080}
				}
				k := r.keys(svc)
				r.registers(first, reg("10.0.0.1"))
				// The second one, elsewhere, waits until the first one was silent for three of its intervals.
				r.do("ZADD", k.heartbeats(svc), "XX", strconv.FormatInt(r.now(svc)-200_000, 10), "a")
				r.registers(second, reg(host))
				r.do("DEL", k.instance(svc, "a"), k.heartbeats(svc), k.record(svc), k.changes(svc), k.replaced(svc))
				if err := first.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, ErrUnknown) {
					t.Fatalf("%v, expected that redis has nothing", err)
				}
				await(t, "the first one again", func() bool { return r.instance(svc, "a")["epoch"] == first.epoch })
				await(t, "the second one", func() bool {
					_ = second.Heartbeat(bounded(t), svc, "a")
					return r.instance(svc, "a")["epoch"] == second.epoch
				})
				if err := first.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, ErrSuperseded) {
					t.Errorf("%v, expected that the first one is superseded", err)
				}
				if s := second.Status()[0]; !s.Registered || s.Holder != nil {
					t.Errorf("%+v, expected that the second one is registered", s)
				}
				if err := second.Deregister(bounded(t), svc, "a"); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestDrainingTakesNothing: an instance that begins to end takes its id from no other one.
func TestDrainingTakesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		holder, late := r.provider(), r.provider()
		r.registers(holder, mine("a"))
		reg := mine("a")
		reg.Draining = true
		if err := late.Register(bounded(t), reg); !errors.As(err, new(*HolderError)) || errors.Is(err, ErrSuperseded) {
			t.Errorf("%v, expected a conflict", err)
		}
		if h := r.instance(svc, "a"); h["epoch"] != holder.epoch || h["draining"] != "false" {
			t.Errorf("%v, expected the instance of the holder %s", h, holder.epoch)
		}
	})
}

// TestProviderConflict: another address waits until the holder is silent, and then has the id.
func TestProviderConflict(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		holder := registration(svc, "a", func(x *Registration) { x.Interval, x.Host = quick, "10.0.0.9" })
		_, content := holder.fields()
		r.put(svc, codeDone, item("e1", "", holder))
		r.do("ZADD", r.keys(svc).heartbeats(svc), strconv.FormatInt(r.now(svc)+60_000, 10), "a") // it beats for a minute
		p := r.provider()
		err := p.Register(bounded(t), mine("a"))
		var conflict *HolderError
		if !errors.As(err, &conflict) || errors.Is(err, ErrSuperseded) || conflict.Epoch != "e1" || conflict.Host != "10.0.0.9" {
			t.Fatal(err)
		}
		if s := p.Status()[0]; s.Registered || s.Holder == nil || s.Holder.Superseded {
			t.Errorf("%+v", s)
		}
		if got := r.beat(svc, beatItem{"a", "e1", content, ""}); got != "1" {
			t.Error(got)
		}
		await(t, "the takeover", func() bool { return r.instance(svc, "a")["epoch"] == p.epoch })
		await(t, "the end of the conflict", func() bool { s := p.Status()[0]; return s.Registered && s.Holder == nil })
	})
}

// TestProviderGhost: an earlier life of the instance that comes back with old data of Redis does
// not end the living one.
func TestProviderGhost(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.put(svc, codeDone, item("ghost", "", registration(svc, "a")))
		k := r.keys(svc)
		old := r.instance(svc, "a")
		r.remove(svc, reasonDeregistered, deregisterItem{"a", "ghost"})
		p := r.provider()
		r.registers(p, mine("a"))
		args := []string{"HSET", k.instance(svc, "a")}
		for name, value := range old {
			args = append(args, name, value)
		}
		r.do(args...)
		await(t, "the living one", func() bool { return r.instance(svc, "a")["epoch"] == p.epoch })
		await(t, "its knowledge", func() bool { return p.Status()[0].Registered })
	})
}

func TestHeartbeatAll(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.provider(func(o *Options) { o.Heartbeat.HeartbeatInterval = time.Minute })
		for i := range 100 {
			r.registers(p, mine(fmt.Sprintf("i%02d", i)))
		}
		r.registers(p, Registration{Service: "other", ID: "x", Port: 1})
		// One is gone, and another one was taken over: the others do not notice.
		r.remove(svc, reasonOperator, deregisterItem{"i07", ""})
		r.put(svc, codeDone, item("new", p.epoch, registration(svc, "i08")))
		got, err := p.HeartbeatAll(bounded(t))
		if err != nil || len(got) != 101 {
			t.Fatal(len(got), err)
		}
		for _, g := range got {
			switch g.ID {
			case "i07":
				if !errors.Is(g.Err, ErrUnknown) {
					t.Errorf("%+v; want errors.Is(g.Err, ErrUnknown)", g)
				}
			case "i08":
				if !errors.Is(g.Err, ErrSuperseded) {
					t.Errorf("%+v; want errors.Is(g.Err, ErrSuperseded)", g)
				}
			default:
				if g.Err != nil {
					t.Errorf("%+v; want no error", g)
				}
			}
		}
		await(t, "i07", func() bool { return r.instance(svc, "i07")["epoch"] == p.epoch })
	})
}

// counter is a collector whose figure the test sets.
type counter struct{ value atomic.Int64 }

func (*counter) Type() string                   { return "app" }
func (*counter) Available(context.Context) bool { return true }
func (*counter) Cost() collector.Cost           { return collector.CostLow }
func (c *counter) Collect(context.Context) (collector.Metrics, error) {
	return collector.Metrics{"threads": c.value.Load()}, nil
}

// TestProviderMetrics: figures come with everything else, at once after a significant change, and
// else not.
func TestProviderMetrics(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		c := new(counter)
		c.value.Store(5)
		p := r.provider(func(o *Options) {
			o.Collectors = []collector.Entry{{Collector: c, Interval: quick}}
			o.Heartbeat = heartbeat.Policy{
				HeartbeatInterval: time.Minute, MetadataGap: time.Millisecond,
				Thresholds: map[string]heartbeat.Threshold{"app.threads": {Kind: heartbeat.Absolute, Value: 10}},
			}
			o.FlatMetrics = true
		})
		clash := mine("a")
		clash.Metadata = map[string]string{"app_version": "1"}
		if err := p.Register(bounded(t), clash); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Error(err)
		}
		r.registers(p, mine("a"))
		await(t, "the first figures", func() bool { return r.instance(svc, "a")["metrics"] == `{"app":{"threads":5}}` })
		heard := r.hear(r.keys(svc).metrics(svc))
		c.value.Store(14) // not significant
		await(t, "the change to be collected", func() bool { return strings.Contains(p.figures().json, "14") })
		c.value.Store(15)
		if e := receive(t, heard); e.ID != "a" || string(e.Metrics) != `{"app":{"threads":15}}` {
			t.Errorf("%+v; want e.ID == \"a\", string(e.Metrics) == `{\"app\":{\"threads\":15}}`", e)
		}
		if h := r.instance(svc, "a"); h["metadata_app_threads"] != "15" || h["revision"] != "1" {
			t.Errorf(`%v; want h["metadata_app_threads"] == "15", h["revision"] == "1"`, h)
		}
		await(t, "the count", func() bool { return testutil.ToFloat64(p.metrics.sends.WithLabelValues("metrics_update", "ok")) >= 1 })
	})
}

// watcher is a client that keeps the arguments of all scripts.
type watcher struct {
	rueidis.Client
	mu   sync.Mutex
	seen []string // guarded by mu
}

func (w *watcher) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	w.mu.Lock()
	w.seen = append(w.seen, cmd.Commands()...)
	w.mu.Unlock()
	return w.Client.Do(ctx, cmd)
}

// TestNoLocalTime: no argument of a call holds the time of this machine, in any unit. When an instance registered is
// Redis' time, given back.
func TestNoLocalTime(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		w := &watcher{Client: r.redis.RoleClient(t)}
		shared := newConn(r.prefix, w, r.redis.IsCluster(), zaptest.NewLogger(t), nil)
		opts := Options{
			Heartbeat: heartbeat.Policy{HeartbeatInterval: quick, MetadataInterval: 2 * quick}, StopPause: -1,
			Collectors: []collector.Entry{{Collector: new(counter), Interval: quick}},
		}
		p, err := NewProviderOn(&Store{shared}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(bounded(t)); err != nil {
			t.Fatal(err)
		}
		r.registers(p, mine("a"))
		for range 4 {
			r.beaten("a")
		}
		registered := r.instance(svc, "a")["registered"]
		weight := 0.5
		_, err1 := shared.override(bounded(t), svc, "a", &Override{Weight: &weight, Author: "eve", AtMS: time.Now().UnixMilli()}, time.Hour, nil)
		_, err2 := shared.verdict(bounded(t), svc, "a", p.epoch, false, "refused")
		_, err3 := shared.cleanupAll(bounded(t), svc)
		if err := errors.Join(err1, err2, err3, p.Stop(bounded(t))); err != nil {
			t.Fatal(err)
		}
		number := regexp.MustCompile(`\d{9,20}`)
		now := time.Now()
		for _, arg := range w.seen {
			if strings.Contains(arg, "redis.call") || arg == registered {
				continue // the first one is the text of a script
			}
			for _, digits := range number.FindAllString(arg, -1) {
				n, err := strconv.ParseFloat(digits, 64)
				if err != nil {
					t.Fatal(err)
				}
				for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
					at := time.Unix(0, int64(n*float64(unit)))
					if d := at.Sub(now).Abs(); n*float64(unit) < 9e18 && d < 30*24*time.Hour && !isHex(arg) {
						t.Errorf("argument %q holds a time", arg)
					}
				}
			}
		}
	})
}

var hexOnly = regexp.MustCompile(`^[0-9a-f]{16}([0-9a-f]{16}|[0-9a-f]{24})?$`)

// isHex is true for stamps, hashes and epochs, which are random.
func isHex(arg string) bool { return hexOnly.MatchString(arg) }

// TestOutOfMemory: where Redis takes no writes for lack of memory what lives goes on, what ends
// ends, and what is new is refused.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	p := r.provider()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.registers(p, mine(id))
	}
	r.put(svc, codeDone, item("e1", "", registration(svc, "dead")))
	r.do("CONFIG", "SET", "maxmemory", "1")
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	r.beaten("a")
	if err := p.Register(bounded(t), mine("new")); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Error(err)
	}
	changed := mine("a")
	changed.Weight = new(3.0)
	if err := p.Register(bounded(t), changed); freeslot.CodeOf(err) != freeslot.CodeOverloaded {
		t.Error(err)
	}
	if h := r.instance(svc, "a"); h["weight"] != "1" || len(r.instance(svc, "new")) > 0 {
		t.Errorf(`%v; want h["weight"] == "1", len(r.instance(svc, "new")) <= 0`, h)
	}
	for range 3 { // also while its change is refused
		r.beaten("a")
		r.beaten("b")
	}
	reg := mine("c")
	reg.Interval = quick
	got := r.put(svc, codeSame, item(p.epoch, "", reg.WithDefaults()))[0]
	if got.registered == 0 {
		t.Errorf("%+v; want got.registered != 0", got)
	}
	if err := p.Deregister(bounded(t), svc, "b"); err != nil {
		t.Error(err)
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
	r.do("ZADD", r.keys(svc).heartbeats(svc), "XX", strconv.FormatInt(r.now(svc)-130_000, 10), "dead")
	r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-31_000, 10))
	r.do("CONFIG", "SET", "maxmemory", "1")
	if done, err := r.cleanup(bounded(t), svc); done.removed != 1 || err != nil {
		t.Errorf("%+v, %v; want done.removed == 1, no error", done, err)
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
	await(t, "what was refused", func() bool { return r.instance(svc, "a")["weight"] == "3" && r.beats(svc)["new"] > 0 })
}

// TestProviderRights: a provider needs no more than the role registry has.
func TestProviderRights(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	rights, err := acl.Of(script.RoleRegistry, "", []script.Layout{{Prefix: r.prefix}}, Access)
	if err != nil {
		t.Fatal(err)
	}
	user := acl.User{Name: "provider", Rights: rights, Password: "secret"}
	r.do(append([]string{"ACL", "SETUSER", user.Name}, user.Rules()...)...)
	p := r.provider(func(o *Options) { o.RedisURL = "redis://provider:secret@" + server.Addrs()[0] })
	r.registers(p, mine("a"))
	r.beaten("a")
	r.do("HDEL", r.keys(svc).record(svc), "cleaned")
	if _, err := p.conn().cleanup(bounded(t), svc); err != nil {
		t.Error(err)
	}
	if err := p.conn().commands.Do(bounded(t), p.conn().commands.B().Get().Key(r.prefix+":jobs:x").Build()).Error(); !script.IsRefused(err) {
		t.Error(err)
	}
	if err := p.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
}

// TestProviderMigration: while a hash slot moves, and after it, instances beat.
func TestProviderMigration(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewReplicaCluster(t)
	r := newRig(t, cluster.Target)
	p := r.provider()
	for i := range 20 {
		r.registers(p, mine("i"+strconv.Itoa(i)))
	}
	runner, _ := r.of(svc)
	slot, _ := runner.Layout().Slot()
	at := uint16(slot) //nolint:gosec // below 16384
	to := cluster.Owner(at ^ 8192)
	cluster.BeginMigration(at, to, r.keys(svc).heartbeats(svc))
	await(t, "the failures of a service on two servers", func() bool { return p.Status()[0].Err != nil })
	cluster.MigrateSlot(at, to)
	for i := range 20 {
		r.beaten("i" + strconv.Itoa(i))
	}
	await(t, "the end of failures", func() bool {
		return !slices.ContainsFunc(p.Status(), func(s InstanceStatus) bool { return s.Err != nil || !s.Registered })
	})
	if n := len(r.beats(svc)); n != 20 {
		t.Error(n)
	}
}

// TestProviderStopBounded: where Redis does not answer, Stop ends with its context and says what is
// left.
func TestProviderStopBounded(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	opts := Options{RedisURL: server.URL(), KeyPrefix: r.prefix, StopPause: time.Hour}
	p, err := NewProvider(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	r.registers(p, mine("a"))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(context.Background(), quick)
	defer cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "deregister instance a of shop") {
		t.Error(err)
	}
}

// TestProviderNames: a service without an instance costs a provider nothing, and can be registered
// again at any time.
func TestProviderNames(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.provider()
		none := func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.services) == 0 }
		var racers sync.WaitGroup
		for n := range 4 {
			racers.Go(func() {
				for range 25 {
					reg := mine(fmt.Sprint(n))
					if err := errors.Join(p.Register(bounded(t), reg), p.Deregister(bounded(t), svc, reg.ID)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		racers.Wait()
		await(t, "the end of the service", none)
		r.registers(p, mine("a"))
		if none() {
			t.Error("the service of an instance has ended")
		}
		r.beaten("a")
	})
}
