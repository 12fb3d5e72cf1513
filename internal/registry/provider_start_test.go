package registry

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestProviderWithoutRedis: a provider starts while Redis is away, and registers what it was given
// when Redis comes.
func TestProviderWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	server.Kill()
	p := r.provider()
	if !p.Running() {
		t.Error("it is not running")
	}
	later := func(what string, err error) {
		t.Helper()
		if freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Errorf("%s: %v, expected unavailable", what, err)
		}
	}
	given := []Registration{mine("a"), mine("a"), {Service: svc, ID: "b", Port: 1}, {Service: svc, Port: 2}, {Service: svc, Port: 2, Weight: new(3.0)}, mine("c"), {Service: svc, Port: 4}}
	given[1].Weight = new(2.0)
	for _, reg := range given {
		later("register", p.Register(bounded(t), reg))
	}
	later("heartbeat", p.Heartbeat(bounded(t), svc, "b"))
	all, err := p.HeartbeatAll(bounded(t))
	if err != nil || len(all) != 5 {
		t.Fatalf("%v, %v; want no error, len(all) == 5", all, err)
	}
	later("heartbeat of all", all[0].Err)
	for _, s := range p.Status() {
		if s.Registered {
			t.Errorf("%+v", s)
		}
		later("status", s.Err)
	}
	for _, id := range []string{"c", "{host}:4"} { // Redis never had them
		if err := p.Deregister(bounded(t), svc, id); err != nil {
			t.Error(err)
		}
	}
	if err := p.Register(bounded(t), Registration{Service: svc, Port: -1, Weight: new(-1.0)}); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Error(err)
	}
	// A caller that calls again until there is no error gets no second instance.
	ctx := bounded(t)
	var again sync.WaitGroup
	again.Go(func() {
		for p.Register(ctx, given[4]) != nil && ctx.Err() == nil {
			runtime.Gosched()
		}
	})
	server.Restart()
	again.Wait()
	await(t, "the instances", func() bool { return len(r.beats(svc)) == 3 })
	for id, want := range map[string][2]string{"a": {"10.0.0.1", "2"}, "b": {"127.0.0.1", "1"}, "127.0.0.1:2": {"127.0.0.1", "3"}} {
		if h := r.instance(svc, id); h["host"] != want[0] || h["weight"] != want[1] {
			t.Errorf("%s is %v, expected host and weight %v", id, h, want)
		}
	}
	await(t, "the provider's knowledge", func() bool {
		all := p.Status()
		for _, s := range all {
			if !s.Registered || s.Err != nil {
				return false
			}
		}
		return len(all) == 3
	})
	r.beaten("127.0.0.1:2")
}

// TestProviderStopWithoutRedis: Stop ends the tries, and what Redis never had is no error.
func TestProviderStopWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	server.Kill()
	p := r.provider(func(o *Options) { o.StopPause = 0 })
	for _, reg := range []Registration{mine("a"), {Service: svc, Port: 1}} {
		if err := p.Register(bounded(t), reg); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Error(err)
		}
	}
	if err := p.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
	if err := p.Register(bounded(t), mine("a")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestProviderRefused: a Redis that refuses is an error of Start, which can be called again.
func TestProviderRefused(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	p, err := NewProvider(Options{RedisURL: "redis://someone:secret@" + server.Addrs()[0], KeyPrefix: r.prefix, StopPause: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(bounded(t)); err == nil || p.Running() {
		t.Errorf("start: %v, expected that the password is refused", err)
	}
	r.do("ACL", "SETUSER", "someone", "on", ">secret", "~*", "&*", "+@all")
	if err := p.Start(bounded(t)); err != nil {
		t.Error(err)
	}
	r.registers(p, mine("a"))
	if err := p.Stop(bounded(t)); err != nil {
		t.Error(err)
	}
}

// TestProviderHostRefusedLater: a host on loopback that turns out to be of no use for others stays
// in Status, and is logged once.
func TestProviderHostRefusedLater(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		core, logged := observer.New(zap.ErrorLevel)
		redis := newConnection(nil, zap.NewNop())
		p, err := newProvider(Options{StopPause: -1, Logger: zap.New(core)}, redis)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(bounded(t)); err != nil {
			t.Fatal(err)
		}
		loop := mine("a")
		loop.Host = "localhost"
		if err := p.Register(bounded(t), loop); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
			t.Error(err)
		}
		redis.set(newConn(r.prefix, &elsewhere{Client: r.client}, r.cluster, zaptest.NewLogger(t), nil), func() {})
		refused := func() error { return p.Status()[0].Err }
		await(t, "the refusal", func() bool { return freeslot.CodeOf(refused()) == freeslot.CodeInvalidArgument })
		if err := p.Heartbeat(bounded(t), svc, "a"); !errors.Is(err, refused()) {
			t.Error(err)
		}
		if logged.FilterMessage("registry.host_refused").Len() != 1 || len(r.instance(svc, "a")) > 0 {
			t.Errorf(`%v, %v; want logged.FilterMessage("registry.host_refused").Len() == 1, len(r.instance(svc, "a")) <= 0`, logged.All(), r.instance(svc, "a"))
		}
		r.registers(p, mine("a"))
		if s := p.Status(); len(s) != 1 || !s[0].Registered || s[0].Err != nil {
			t.Errorf("%+v; want len(s) == 1, s[0].Registered, no error", s)
		}
		if err := p.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
}
