package lock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestModel compares random histories of three processes with the twin: every answer, and after
// each call everything that is in Redis. Answers are lost, calls are made twice and late, leases
// end, processes fall silent and stop to listen.
//
// Throughout no two processes believe that they have one lock. In the end no lock is free beside a
// live waiter once all processes have beaten, and after all have released there is no key.
func TestModel(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newScriptRig(t, redis, time.Hour) // far longer than the test
		for range 3 {
			r.process()
		}
		rapid.Check(t, func(rt *rapid.T) {
			h := newHistory(rt, r)
			rt.Repeat(map[string]func(*rapid.T){
				"acquire": h.acquire,
				"ghost":   h.ghost,
				"release": h.release,
				"renew":   h.renew,
				"revoke":  h.revoke,
				"expire":  h.expire,
				"pass":    h.pass,
				"silence": h.silence,
				"listen":  h.listen,
				"":        h.check,
			})
			h.end()
		})
	})
}

// scriptRig calls scripts for processes that have no loops.
type scriptRig struct {
	t      testing.TB
	redis  *redistest.Target
	raw    rueidis.Client
	layout script.Layout
	limit  time.Duration
	procs  []*process
	number uint64
}

// process is one that can listen to its wake channel.
type process struct {
	*group
	conn  rueidis.DedicatedClient
	mu    sync.Mutex
	wakes []string // guarded by mu
}

func newScriptRig(t testing.TB, redis *redistest.Target, limit time.Duration) *scriptRig {
	t.Helper()
	return &scriptRig{
		t: t, redis: redis, raw: redis.Client(t), limit: limit,
		layout: script.Layouts(redis.Prefix(t), 1, redis.IsCluster())[0],
	}
}

// process adds one that does not listen yet.
func (r *scriptRig) process() *process {
	r.t.Helper()
	m, err := New(Options{RedisURL: r.redis.URL(), KeyPrefix: r.layout.Prefix})
	if err != nil {
		r.t.Fatal(err)
	}
	m.opts.Liveness = r.limit // beyond what New takes
	runner := script.NewRunner(script.Config{Layout: r.layout, CallTimeout: time.Minute}, r.redis.RoleClient(r.t), zap.NewNop(), nil)
	p := &process{group: newGroup(m, runner)}
	conn, release := r.raw.Dedicate()
	p.conn = conn
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.Message != "" {
			p.wakes = append(p.wakes, m.Message)
		}
	}})
	r.t.Cleanup(func() {
		conn.Close()
		release()
	})
	r.procs = append(r.procs, p)
	return p
}

func (r *scriptRig) ctx() context.Context { return context.Background() }

// listens has the process hear of grants, or not.
func (p *process) listens(on bool) error {
	channel := p.keys.wake(p.process)
	cmd := p.conn.B().Unsubscribe().Channel(channel).Build()
	switch {
	case p.keys.layout.Sharded && on:
		cmd = p.conn.B().Ssubscribe().Channel(channel).Build()
	case p.keys.layout.Sharded:
		cmd = p.conn.B().Sunsubscribe().Channel(channel).Build()
	case on:
		cmd = p.conn.B().Subscribe().Channel(channel).Build()
	}
	if err := p.conn.Do(context.Background(), cmd).Error(); err != nil {
		return err
	}
	return p.sync()
}

// sync returns when all that was published to the process before has arrived.
func (p *process) sync() error {
	return p.conn.Do(context.Background(), p.conn.B().Get().Key(p.keys.token()).Build()).NonRedisError()
}

// heard are the messages since the last call.
func (p *process) heard(t testing.TB) []string {
	t.Helper()
	if err := p.sync(); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.wakes
	p.wakes = nil
	return out
}

func (r *scriptRig) do(args ...string) rueidis.RedisResult {
	return r.raw.Do(r.ctx(), r.raw.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build())
}

// acquisition is a new one of a process.
func (r *scriptRig) acquisition(p *process, cfg Config) *acquisition {
	r.number++
	return newAcquisition(p.group, cfg.WithDefaults(), r.number, "host:1 \"it\"")
}

// history is one run of the twin beside the scripts.
type history struct {
	*scriptRig
	twin   *twin
	all    []*client
	ghosts []*client
	tokens map[string]*tokens
}

// tokens are those of one lock.
type tokens struct {
	grants int
	last   int64
}

func newHistory(rt *rapid.T, r *scriptRig) *history {
	h := &history{
		scriptRig: r, tokens: make(map[string]*tokens),
		twin: &twin{limit: r.limit, window: r.procs[0].window(), locks: make(map[string]*twinLock)},
	}
	if err := r.do("DEL", r.procs[0].keys.alive()).Error(); err != nil {
		rt.Fatal(err)
	}
	for _, p := range r.procs {
		on := rapid.Bool().Draw(rt, "listens")
		if err := p.listens(on); err != nil {
			rt.Fatal(err)
		}
		p.heard(r.t)
		h.twin.procs = append(h.twin.procs, &twinProc{listens: on})
	}
	r.number++
	names := []string{fmt.Sprintf("a%d", r.number), fmt.Sprintf("b%d {x}", r.number)}
	for _, name := range names {
		h.twin.locks[name], h.tokens[name] = &twinLock{}, &tokens{}
	}
	fair := rapid.IntRange(0, 2).Draw(rt, "fair") // none, all, mixed
	for proc := range r.procs {
		for i := range 4 {
			h.all = append(h.all, h.client(proc, Config{
				Key: names[i/3], Lease: time.Duration(100+10*proc) * time.Minute, Fair: fair == 1 || fair == 2 && i%2 == 0,
			}))
		}
	}
	return h
}

func (h *history) client(proc int, cfg Config) *client {
	return &client{proc: proc, a: h.acquisition(h.procs[proc], cfg)}
}

// draw are a few acquisitions of one process.
func (h *history) draw(rt *rapid.T, from []*client) []*client {
	proc := rapid.IntRange(0, len(h.procs)-1).Draw(rt, "process")
	own := slices.DeleteFunc(slices.Clone(from), func(c *client) bool { return c.proc != proc })
	if len(own) == 0 {
		rt.Skip("none")
	}
	own = rapid.Permutation(own).Draw(rt, "clients")
	return own[:rapid.IntRange(1, min(3, len(own))).Draw(rt, "items")]
}

// fate of a call: its answer arrives, or is lost; or it is made twice.
func fate(rt *rapid.T) (times int, lost bool) {
	f := rapid.SampledFrom([]string{"", "", "", "lost", "twice"}).Draw(rt, "fate")
	if f == "twice" {
		return 2, false
	}
	return 1, f == "lost"
}

func (h *history) acquire(rt *rapid.T) {
	clients := h.draw(rt, h.all)
	waits := rapid.SliceOfN(rapid.Bool(), len(clients), len(clients)).Draw(rt, "waits")
	times, lost := fate(rt)
	for range times {
		h.acquireOnce(rt, clients, waits, lost)
	}
}

// ghost is a call that Redis carries out after its caller has released: nobody hears the answer.
func (h *history) ghost(rt *rapid.T) {
	clients := h.draw(rt, h.ghosts)
	waits := make([]bool, len(clients))
	waits[0] = rapid.Bool().Draw(rt, "waits")
	h.acquireOnce(rt, clients, waits, true)
}

func (h *history) acquireOnce(rt *rapid.T, clients []*client, waits []bool, lost bool) {
	proc := clients[0].proc
	items := make([]acquireItem, len(clients))
	for i, c := range clients {
		waits[i] = waits[i] || c.waited // one that has waited goes on
		c.waited = waits[i]
		place := "0"
		if c.known {
			place = c.a.inQueue()
		}
		items[i] = acquireItem{a: c.a, wait: waits[i], place: place}
	}
	got, err := h.procs[proc].acquire(h.ctx(), items)
	if err != nil {
		rt.Fatal(err)
	}
	h.twin.shown = false
	for i, c := range clients {
		if want := h.twin.acquire(c, waits[i]); got[i].code != want {
			rt.Fatalf("acquire %s: code %d, expected %d", c.a.id(), got[i].code, want)
		}
		switch {
		case lost:
		case got[i].code == codeDone:
			c.believes = true
		case waits[i]:
			c.a.queued(got[i].place)
			c.known = true
		}
	}
}

func (h *history) release(rt *rapid.T) {
	clients := h.draw(rt, h.all)
	times, lost := fate(rt)
	items := make([]releaseItem, len(clients))
	heirs := make([]*client, len(clients))
	named := slices.Clone(clients)
	for i, c := range clients {
		c.believes = false
		c.a.ticket.Store(true)
		items[i] = releaseItem{a: c.a, reason: "unlocked"}
		if rapid.IntRange(0, 9).Draw(rt, "keeps") == 0 {
			items[i].keep = 50 * time.Minute
		}
		for _, x := range h.all {
			if x.proc == c.proc && x.lock() == c.lock() && !x.a.cfg.Fair && !x.believes && !slices.Contains(named, x) && rapid.Bool().Draw(rt, "heir") {
				heirs[i], items[i].heir, items[i].pass = x, x.a, rapid.Bool().Draw(rt, "passes")
				x.waited = true
				named = append(named, x)
				break
			}
		}
	}
	for range times {
		got, err := h.procs[clients[0].proc].release(h.ctx(), items)
		if err != nil {
			rt.Fatal(err)
		}
		for i, c := range clients {
			want := h.twin.release(c, true, items[i].keep, heirs[i], items[i].pass)
			out := got[i]
			if out.had != want.had || out.others != want.others || (out.token > 0) != (want.token > 0) || (out.place != "") != (want.place != "") {
				rt.Fatalf("release %s: %+v, expected %+v", c.a.id(), out, want)
			}
			switch x := heirs[i]; {
			case lost || x == nil:
			case out.token > 0:
				x.believes = true
			case out.place != "":
				x.a.queued(out.place)
				x.known = true
			}
		}
	}
	// Numbers are never used again.
	for _, c := range clients {
		c.gone = true
		h.ghosts = append(h.ghosts, c)
		h.all[slices.Index(h.all, c)] = h.client(c.proc, c.a.cfg)
	}
}

func (h *history) renew(rt *rapid.T) {
	clients := h.draw(rt, h.all)
	look := rapid.Bool().Draw(rt, "look")
	items := make([]*acquisition, len(clients))
	for i, c := range clients {
		c.a.token = h.tokens[c.lock()].last // check has read it
		items[i] = c.a
	}
	got, err := h.procs[clients[0].proc].renew(h.ctx(), items, look)
	if err != nil {
		rt.Fatal(err)
	}
	for i, c := range clients {
		if want := h.twin.renew(c, look); got[i].code != want {
			rt.Fatalf("renew %s: %+v, expected code %d", c.a.id(), got[i], want)
		}
		if got[i].code != codeDone {
			c.believes = false
		}
	}
}

func (h *history) drawLock(rt *rapid.T) string {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(h.twin.locks))).Draw(rt, "lock")
}

func (h *history) revoke(rt *rapid.T) {
	name, now := h.drawLock(rt), rapid.Bool().Draw(rt, "now")
	k := h.procs[0].keys
	l := h.twin.locks[name]
	args := []string{name, "", "op", "why", "0"}
	if now {
		args[4] = "1"
	}
	reply, err := script.NewRunner(script.Config{Layout: h.layout, CallTimeout: callTimeout}, h.raw, zap.NewNop(), nil).
		Call(h.ctx(), scripts["revoke"], []string{k.held(name), k.audit()}, args).ToArray()
	want := int64(1)
	if l.owner == nil && !l.kept {
		want = 0
	}
	if err != nil {
		rt.Fatal(err)
	}
	if got, err := reply[0].AsInt64(); err != nil || got != want {
		rt.Fatal(got, err)
	}
	switch {
	case want == 0:
	case now:
		h.disbelieve(name)
		h.twin.free(l) // the next beat takes it
	default:
		l.revoked = true
	}
}

// disbelieve is for what is done to a lock behind its holder's back, and for a lease that ends, as
// the holder knows by its own clock.
func (h *history) disbelieve(name string) {
	for _, c := range h.all {
		if c.lock() == name {
			c.believes = false
		}
	}
}

// expire ends the lease of a lock.
func (h *history) expire(rt *rapid.T) {
	name := h.drawLock(rt)
	h.expireNow(rt, name)
	h.twin.free(h.twin.locks[name])
}

func (h *history) expireNow(t failer, name string) {
	h.disbelieve(name)
	if err := h.do("PEXPIRE", h.procs[0].keys.held(name), "0").Error(); err != nil {
		t.Fatal(err)
	}
}

type failer interface{ Fatal(...any) }

// pass lets as much time pass as a new owner has to claim.
func (h *history) pass(rt *rapid.T) {
	for _, name := range h.twin.pass() {
		h.expireNow(rt, name)
	}
	alive := h.procs[0].keys.alive()
	for _, p := range h.procs {
		if h.do("ZSCORE", alive, p.process).Error() == nil {
			h.do("ZINCRBY", alive, "-"+milliseconds(h.twin.window), p.process)
		}
	}
}

func (h *history) silence(rt *rapid.T) {
	proc := rapid.IntRange(0, len(h.procs)-1).Draw(rt, "process")
	h.twin.procs[proc].beaten = false
	if err := h.do("ZREM", h.procs[proc].keys.alive(), h.procs[proc].process).Error(); err != nil {
		rt.Fatal(err)
	}
}

func (h *history) listen(rt *rapid.T) {
	proc := rapid.IntRange(0, len(h.procs)-1).Draw(rt, "process")
	p := h.twin.procs[proc]
	p.listens = !p.listens
	if err := h.procs[proc].listens(p.listens); err != nil {
		rt.Fatal(err)
	}
}

// check compares Redis with the twin.
func (h *history) check(rt *rapid.T) {
	k := h.procs[0].keys
	counter, err := h.do("GET", k.token()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		rt.Fatal(err)
	}
	for name, l := range h.twin.locks {
		hash, err := h.do("HGETALL", k.held(name)).AsStrMap()
		if err != nil {
			rt.Fatal(err)
		}
		owner := ""
		switch {
		case l.kept:
			owner = "-"
		case l.owner != nil:
			owner = l.owner.a.id()
		}
		_, revoked := hash["revoked"]
		if hash["acquisition"] != owner || (hash["grant"] == "1") != l.grant || revoked != l.revoked {
			rt.Fatalf("%s is %v, expected %s, grant %v, revoked %v", name, hash, owner, l.grant, l.revoked)
		}
		if len(hash) > 0 {
			left, err := h.do("PTTL", k.held(name)).AsInt64()
			if d := l.ttl - time.Duration(left)*time.Millisecond; err != nil || d < 0 || d > 8*time.Minute {
				rt.Fatalf("%s ends in %d ms, expected %s: %v", name, left, l.ttl, err)
			}
			h.checkToken(rt, name, hash["token"], counter, l)
		}
		tickets, err := h.do("ZRANGE", k.queue(name), "0", "-1").AsStrSlice()
		want := make([]string, len(l.queue))
		for i, c := range l.queue {
			want[i] = c.a.ticketText()
		}
		if err != nil || !slices.Equal(tickets, want) {
			rt.Fatalf("queue of %s: %q, expected %q: %v", name, tickets, want, err)
		}
		for _, c := range h.all {
			if c.lock() == name && c.believes && l.owner != c {
				rt.Fatalf("%s believes that it has %s, which is of %q", c.a.id(), name, owner)
			}
		}
	}
	h.checkWakes(rt)
}

// checkToken: a token is that of the owner before, or above it.
func (h *history) checkToken(rt *rapid.T, name, text string, counter int64, l *twinLock) {
	token, err := strconv.ParseInt(text, 10, 64)
	seen := h.tokens[name]
	if same := seen.grants == l.grants; err != nil || token > counter || same && token != seen.last || !same && token <= seen.last {
		rt.Fatalf("%s has token %s after %d, counter %d: %v", name, text, seen.last, counter, err)
	}
	seen.grants, seen.last = l.grants, token
}

// checkWakes: each owner by hand-over was told, if it listens, and nobody else.
func (h *history) checkWakes(rt *rapid.T) {
	want := make(map[int][]string)
	for _, c := range h.twin.woken {
		want[c.proc] = append(want[c.proc], strconv.FormatUint(c.a.number, 10))
	}
	h.twin.woken = nil
	for i, p := range h.procs {
		var got []string
		for _, message := range p.heard(h.t) {
			number, _, _ := strings.Cut(message, " ")
			got = append(got, number)
			if _, token, ok := parseWake(message); !ok || token == 0 {
				rt.Fatalf("message %q", message)
			}
		}
		if !slices.Equal(got, want[i]) {
			rt.Fatalf("process %d was woken for %v, expected %v", i, got, want[i])
		}
	}
}

// end shows that all can still go on, and that nothing is left.
func (h *history) end() {
	if h.t.Failed() {
		return
	}
	rt := failing{h.t}
	release := func(clients []*client) {
		for _, c := range clients {
			c.a.ticket.Store(true)
			out, err := h.procs[c.proc].release(h.ctx(), []releaseItem{{a: c.a, reason: "left"}})
			if err != nil {
				rt.Fatal(err)
			}
			h.twin.release(c, true, 0, nil, false)
			_ = out
		}
	}
	release(h.ghosts)
	for name, l := range h.twin.locks {
		if l.kept {
			h.expireNow(rt, name)
			h.twin.free(l)
		}
	}
	waits := make(map[string]bool)
	for _, c := range h.all {
		if !c.believes && c.known {
			waits[c.lock()] = true
			if _, err := h.procs[c.proc].acquire(h.ctx(), []acquireItem{{a: c.a, wait: true, place: c.a.inQueue()}}); err != nil {
				rt.Fatal(err)
			}
			h.twin.shown = false
			h.twin.acquire(c, true)
		}
	}
	for name := range waits {
		if n, err := h.do("EXISTS", h.procs[0].keys.held(name)).AsInt64(); err != nil || n == 0 {
			h.t.Errorf("%s is free beside live waiters: %v", name, err)
		}
	}
	release(h.all)
	for name := range h.twin.locks {
		for _, key := range []string{h.procs[0].keys.held(name), h.procs[0].keys.queue(name)} {
			if n, err := h.do("EXISTS", key).AsInt64(); err != nil || n != 0 {
				h.t.Errorf("%s is left: %v", key, err)
			}
		}
	}
}

type failing struct{ testing.TB }

func (f failing) Fatal(args ...any) { f.TB.Fatal(args...) }
