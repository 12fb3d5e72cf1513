package oracle

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/version"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/namelist"
)

const (
	chainName  = "checkout"
	bannedList = "banned"
	countries  = 3      // missing, DE, FR
	mostKept   = 50_000 // decisions of a worker, besides those during a fault
	rest       = time.Millisecond
)

// banned reports whether an id is in the list that nothing changes.
func banned(id int) bool { return id%7 == 0 }

// decision is one that a client made.
type decision struct {
	id, country   int
	vip           namelist.ListVersion // zero if it was not asked
	chain         int64
	outcome       namelist.Outcome
	variant, rule string
	doubt         string // the list that was unknown
	begin, end    time.Time
}

// chainOracle knows the documents of a chain, and when a fault lasted.
type chainOracle struct {
	*oracle

	mu        sync.Mutex
	documents map[int64]*chain.Document // guarded by mu; by version
	faults    [][2]time.Time            // set before judge
}

// randomChain is a chain of some rules in any order.
func randomChain(random *rand.Rand) string {
	unknown := func() string { return []string{"skip", "match", "stop"}[random.IntN(3)] }
	negate := func() bool { return random.IntN(4) == 0 }
	rules := []string{
		fmt.Sprintf(`{"name": "vip", "kind": "in", "list": "vip", "unknown": %q, "negate": %v, "outcome": "variant: a"}`, unknown(), negate()),
		fmt.Sprintf(`{"name": "banned", "kind": "in", "list": "banned", "unknown": %q, "negate": %v, "outcome": "deny"}`, unknown(), negate()),
		fmt.Sprintf(`{"name": "share", "kind": "percentage", "percent": %d, "unknown": "stop", "outcome": "variant: b"}`, []int{0, 10, 20, 50, 100}[random.IntN(5)]),
		fmt.Sprintf(`{"name": "home", "kind": "expression", "expression": "country == \"DE\"", "unknown": %q, "negate": %v, "outcome": "allow"}`, unknown(), negate()),
		fmt.Sprintf(`{"name": "season", "kind": "window", "from": "20%d6-01-01T00:00:00Z", "outcome": %q}`, 1+random.IntN(2)*8, []string{"next", "deny"}[random.IntN(2)]),
	}
	random.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
	return chainOf(rules[:2+random.IntN(4)], []string{"allow", "deny"}[random.IntN(2)])
}

func chainOf(rules []string, otherwise string) string {
	return fmt.Sprintf(`{"name": %q, "attributes": {"country": "string"}, "variants": {"a": 1, "b": null}, "rules": [%s], "default": %q}`,
		chainName, strings.Join(rules, ","), otherwise)
}

// put writes a version of the chain.
func (o *chainOracle) put(r *rig, seen int64, text string) int64 {
	r.t.Helper()
	d, _, err := chain.Parse([]byte(text), nil)
	r.check(err)
	o.mu.Lock() // no client knows a version before the oracle does
	defer o.mu.Unlock()
	number, err := r.control.PutChain(r.ctx, lists.ChainPut{Chain: chainName, Seen: seen, Document: string(chain.Encode(d)), Lists: d.Lists(), By: by})
	r.check(err)
	o.documents[number] = d
	return number
}

// truths of the slow twin.
const (
	no = iota
	yes
	unsure
)

// decide is the slow twin of a chain: away are the rules whose list did not answer.
func (o *chainOracle) decide(d *chain.Document, a *decision, away map[string]bool) (outcome namelist.Outcome, variant, rule string) {
	result := func(of chain.Outcome) (namelist.Outcome, string) {
		switch of {
		case chain.Allow:
			return namelist.OutcomeAllow, ""
		case chain.Deny:
			return namelist.OutcomeDeny, ""
		default:
			return namelist.OutcomeVariant, strings.TrimPrefix(string(of), "variant: ")
		}
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		is := o.holds(r, a, away)
		if r.Negate && is != unsure {
			is = yes - is
		}
		if is == unsure && r.Unknown == chain.Stop {
			return namelist.OutcomeUnknown, "", r.Name
		}
		if is == yes || is == unsure && r.Unknown == chain.Match {
			if r.Outcome == chain.Next {
				continue
			}
			outcome, variant = result(r.Outcome)
			return outcome, variant, r.Name
		}
	}
	outcome, variant = result(d.Default)
	return outcome, variant, ""
}

func (o *chainOracle) holds(r *chain.Rule, a *decision, away map[string]bool) int {
	is := false
	switch r.Kind {
	case chain.In:
		if away[r.Name] {
			return unsure
		}
		if is = banned(a.id); r.List == list {
			v, known := o.versions[a.vip.Version]
			if !known {
				return unsure
			}
			is = o.has(v, a.id, a.vip.Revision)
		}
	case chain.Expression:
		if a.country == 0 {
			return unsure
		}
		is = a.country == 1
	case chain.Percentage:
		// The formula as docs/namelist.md has it.
		h := new(big.Int).SetUint64(xxh3.HashString(chainName + "\x00" + name(a.id)))
		bucket := h.Mul(h, big.NewInt(10_000)).Rsh(h, 64).Int64()
		is = float64(bucket) < *r.Percent*100
	case chain.Window:
		is = r.From < "2026"
	}
	if is {
		return yes
	}
	return no
}

// judge compares a decision with the twin. While a fault lasts, any list may have been away.
func (o *chainOracle) judge(a *decision) (wrong string) {
	d := o.documents[a.chain]
	if d == nil {
		return "an unknown version"
	}
	maybe := [][]string{nil}
	if slices.ContainsFunc(o.faults, func(f [2]time.Time) bool { return a.begin.Before(f[1]) && a.end.After(f[0]) }) {
		maybe = [][]string{nil, {"vip"}, {"banned"}, {"vip", "banned"}}
	} else if a.doubt != "" {
		return "unknown without a fault"
	}
	var want []string
	for _, some := range maybe {
		away := make(map[string]bool)
		for _, rule := range some {
			away[rule] = true
		}
		outcome, variant, rule := o.decide(d, a, away)
		if outcome == a.outcome && variant == a.variant && rule == a.rule {
			return ""
		}
		want = append(want, fmt.Sprintf("%s %q by %q", outcome, variant, rule))
	}
	return "want " + strings.Join(want, ", or ")
}

// Every decision of clients is what a slow twin says, whatever is done to the chain and to its
// lists meanwhile, and while a server is silent. It is unknown only then.
func TestChainOracle(t *testing.T) {
	t.Parallel()
	redis, away := redistest.Shared(t), redistest.New(t)
	ctx := waittest.Context(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	prefix, client := redis.Prefix(t), redis.Client(t)
	control := lists.NewControl(client, prefix, redis.IsCluster(), zap.NewNop(), nil)
	own := version.NewSegments(version.SegmentsConfig{Prefix: prefix, Cluster: redis.IsCluster()}, client, zap.NewNop(), nil)
	other := version.NewSegments(version.SegmentsConfig{Prefix: prefix}, away.Client(t), zap.NewNop(), nil)
	server := func(_ context.Context, name string) (*version.Segments, error) {
		if name == "" {
			return own, nil
		}
		return other, nil
	}
	o := &chainOracle{oracle: &oracle{versions: make(map[int64]content), edits: make(map[int][]edit)}, documents: make(map[int64]*chain.Document)}
	r := &rig{t: t, ctx: ctx, control: control, random: rand.New(rand.NewPCG(seed, 1)), oracle: o.oracle}
	r.check(control.PutServer(ctx, lists.Server{Name: "away", Addresses: []string{away.URL()}}))
	r.Manager = manage.New(manage.Config{Self: "r1", URL: "http://r1:7480", Dir: t.TempDir(), Pause: 50 * time.Millisecond, Server: server}, control, zap.NewNop())
	r.check(r.Start(ctx))
	t.Cleanup(func() { r.check(r.Stop(context.Background())) })
	for _, name := range []string{list, bannedList} {
		_, err := control.Create(ctx, name, lists.Spec{Server: "away"})
		r.check(err)
	}
	var file, bad []int
	for i := range all {
		if i < ids {
			file = append(file, i)
		}
		if banned(i) {
			bad = append(bad, i)
		}
	}
	r.importsTo(bannedList, manage.Replace, bad)
	serving := r.imports(0, manage.Replace, file)
	number := o.put(r, 0, randomChain(r.random))

	done, working := make(chan struct{}), sync.WaitGroup{}
	finish := sync.OnceFunc(func() { close(done); working.Wait() })
	t.Cleanup(finish)
	decisions := make([][]decision, 2)
	seen := []map[int64]bool{{}, {}}  // the versions of the chain that each client decided by
	newest := make([]atomic.Int64, 2) // of these
	var unknown, held, made atomic.Int64
	for i := range decisions {
		cfg := namelist.Config{ // whose cache is too small for all ids
			RedisURL: redis.URL(), KeyPrefix: prefix, Deadline: 2 * time.Second, MaxBytes: namelist.MinMaxBytes,
		}
		if i == 1 {
			cfg.RedisURL, cfg.URL = "", r.replica(redis.Client(t), server)
		}
		c, err := namelist.Open(cfg)
		r.check(err)
		t.Cleanup(func() { r.check(c.Close(context.Background())) })
		of := c.Chain(chainName)
		r.check(of.WaitReady(ctx))
		for worker := range 4 { // so that one that waits for the silent server does not stop the others
			random := rand.New(rand.NewPCG(seed, uint64(10+4*i+worker)))
			var mine, rare []decision
			versions := make(map[int64]bool)
			working.Go(func() {
				defer func() {
					o.mu.Lock()
					defer o.mu.Unlock()
					maps.Copy(seen[i], versions)
					decisions[i] = append(append(decisions[i], mine...), rare...)
				}()
				pace := time.NewTicker(rest) // other tests want the processor, too
				defer pace.Stop()
				for {
					select {
					case <-done:
						return
					case <-pace.C:
					}
					a := decision{id: random.IntN(all), country: random.IntN(countries), begin: time.Now()}
					s := namelist.Subject{Key: name(a.id)}
					if a.country > 0 {
						s.Attributes = map[string]any{"country": []string{"DE", "FR"}[a.country-1]}
					}
					d := of.Evaluate(ctx, s)
					a.end, a.chain, a.outcome, a.variant, a.rule, a.doubt = time.Now(), d.Version, d.Outcome, d.Variant, d.Rule, d.Doubt.List
					for _, v := range d.Versions() {
						if v.List == list {
							a.vip = v
						}
					}
					if a.doubt != "" {
						unknown.Add(1)
					}
					long := a.end.Sub(a.begin) > time.Second
					if long {
						held.Add(1)
					}
					made.Add(1)
					versions[a.chain] = true
					was := newest[i].Load()
					for was < a.chain && !newest[i].CompareAndSwap(was, a.chain) {
						was = newest[i].Load()
					}
					switch {
					case long || a.doubt != "":
						rare = append(rare, a)
					case len(mine) < mostKept:
						mine = append(mine, a)
					default:
						mine[random.IntN(mostKept)] = a
					}
				}
			})
		}
	}
	editing := rand.New(rand.NewPCG(seed, 2))
	working.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
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
	for step := range 5 {
		was := serving
		for range 4 {
			at := made.Load()
			number = o.put(r, number, randomChain(r.random))
			r.until("some more decisions", func() bool { return made.Load() > at+100 })
		}
		// A client that follows by HTTP may leave out versions in between.
		r.until("both clients to decide by the newest rules", func() bool {
			return newest[0].Load() >= number && newest[1].Load() >= number
		})
		switch step {
		case 0:
			serving = r.imports(serving, manage.Add, r.some(500))
		case 1:
			serving = r.rebuild(serving, lists.OpExpand, "")
		case 2:
			_, err := r.Switch(ctx, list, manage.SwitchRequest{Number: before, Serving: serving, By: by})
			r.check(err)
			serving = r.serving(before).Number
		case 3:
			serving = r.rebuild(serving, lists.OpMove, "away")
		case 4:
			number = o.put(r, number, chainOf([]string{
				`{"name": "vip", "kind": "in", "list": "vip", "unknown": "stop", "outcome": "variant: a"}`,
				`{"name": "banned", "kind": "in", "list": "banned", "unknown": "match", "outcome": "deny"}`,
			}, "allow"))
			before, from := held.Load(), time.Now()
			away.Pause()
			r.until("decisions that wait for the silent server", func() bool { return held.Load() > before+4 })
			away.Resume()
			o.faults = append(o.faults, [2]time.Time{from, time.Now()})
			at := made.Load()
			r.until("some more decisions", func() bool { return made.Load() > at+1000 })
		}
		if serving != was {
			before = was
		}
	}
	finish()
	o.sort()
	if unknown.Load() == 0 {
		t.Error("no list was unknown while its server was silent; want some")
	}
	for i, of := range decisions {
		wrong, versions := 0, seen[i]
		for k := range of {
			a := &of[k]
			if why := o.judge(a); why != "" {
				if wrong++; wrong <= 5 {
					t.Errorf("client %d: %s with country %d is %s %q by %q of version %d, vip %+v, doubt %q; %s",
						i, name(a.id), a.country, a.outcome, a.variant, a.rule, a.chain, a.vip, a.doubt, why)
				}
			}
		}
		t.Logf("client %d: %d decisions of %d versions, %d wrong; %d unknown in all", i, len(of), len(versions), wrong, unknown.Load())
		if len(versions) < 5 {
			t.Errorf("client %d saw %d versions of the chain; want at least 5", i, len(versions))
		}
	}
}
