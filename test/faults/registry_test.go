package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

const (
	// Twin starts a second process with the same instances while the first one is frozen, lets the
	// first one come back, and starts it again.
	Twin Action = "twin"
	// Full has Redis take no more memory.
	Full Action = "full"
)

const (
	// registryRest is how long all may take to come to rest when the faults are over.
	registryRest = time.Minute
	// settle is for how long a twin and its original live beside each other.
	settle = 2 * time.Second
	// stormLength is for how long of stormPause Redis and the ways begin to break.
	stormLength, stormPause = 3 * time.Second, 9 * time.Second
	// peerPort is the port of the first instance. No process listens there.
	peerPort = 7000
)

// The programs of a run. The instances of p1 are also those of its twin.
var (
	registryProviders = []string{"p1", "p2", "p3"}
	registryConsumers = []string{"c1", "c2"}
	provided          = map[string]string{"p1": "web,web,api", "p2": "web,web", "p3": "web,api"}
	followed          = map[string]string{"c1": "web,api,none", "c2": "web,api"}
)

const twinName = "twin"

// registryRun is a run of processes that provide instances and follow services.
type registryRun struct {
	seed uint64
	plan []Breakage
	// loses: Redis may lose what it has acknowledged.
	loses bool
	// programs is the folder of the binary; empty is the folder of this build.
	programs string
	// rest bounds the time to come to rest; 0 is registryRest.
	rest time.Duration
	// store is Redis where that is not a server of the run's own with a proxy for each program.
	store *store
	// times is how often each provided instance comes; 0 is once.
	times int
}

// TestRegistryFaults: faults in which Redis keeps its data.
func TestRegistryFaults(t *testing.T) {
	t.Parallel()
	seed, length := seedOfRun(t), lengthOfRun(t)
	weak := weakPeers()
	weak[redisTarget] = weakness{3 * time.Second, []Action{Kill, Freeze, Freeze, Drop, Full}, 50 * time.Millisecond, 3 * time.Second}
	for _, name := range slices.Concat(registryProviders, registryConsumers) {
		weak[wayPrefix+name] = weakness{5 * time.Second, []Action{Hole, Hole, Reset, Slow, Cut}, 100 * time.Millisecond, 4 * time.Second}
	}
	testRegistry(t, registryRun{seed: seed, plan: registryPlan(seed, length, weak)}, length)
}

// TestRegistryFaultsThatLoseData: what is lost comes back within an interval.
func TestRegistryFaultsThatLoseData(t *testing.T) {
	t.Parallel()
	seed, length := seedOfRun(t), lengthOfRun(t)
	weak := weakPeers()
	weak[dataTarget] = weakness{2 * time.Second, []Action{Flush, Empty, FailOver}, 0, lossLength}
	testRegistry(t, registryRun{seed: seed, plan: registryPlan(seed, length, weak), loses: true}, length)
}

const dataTarget = "data"

func weakPeers() map[string]weakness {
	weak := map[string]weakness{}
	for _, name := range registryProviders {
		weak[name] = weakness{6 * time.Second, []Action{Kill, Freeze, Freeze, Stop}, 50 * time.Millisecond, 6 * time.Second}
	}
	w := weak[registryProviders[0]]
	w.actions = []Action{Kill, Freeze, Twin}
	weak[registryProviders[0]] = w
	for _, name := range registryConsumers {
		weak[name] = weakness{10 * time.Second, []Action{Kill, Freeze}, 50 * time.Millisecond, 3 * time.Second}
	}
	return weak
}

// registryPlan breaks Redis and the ways only in a part of each period: then it can be seen how
// long it takes to heal.
func registryPlan(seed uint64, length time.Duration, weak map[string]weakness) []Breakage {
	return slices.DeleteFunc(planOf(seed, length, weak), func(b Breakage) bool {
		_, isWay := strings.CutPrefix(b.Target, wayPrefix)
		return (isWay || b.Target == redisTarget || b.Target == dataTarget) && b.At%stormPause > stormLength
	})
}

func testRegistry(t *testing.T, r registryRun, length time.Duration) {
	t.Helper()
	t.Logf("this run again: make faults SEED=%d DURATION=%s", r.seed, length)
	h, unrest := r.do(t)
	h.judge(t, unrest)
}

// judge reports what is wrong with a run, and returns how often each rule had something to judge.
func (h *RegistryHistory) judge(t *testing.T, unrest []Violation) (judged map[string]int) {
	t.Helper()
	found, judged := CheckRegistry(h)
	violations := slices.Concat(found, unrest)
	for _, v := range violations[:min(len(violations), shownViolations)] {
		t.Errorf("%s", v)
	}
	t.Log(h.summary(judged))
	if t.Failed() {
		h.save(t, filepath.Join(logs, filepath.Base(t.Name()), "troubles.txt"))
	}
	return judged
}

// save writes what was broken beside the logs of the programs, by their clock.
func (h *RegistryHistory) save(t *testing.T, file string) {
	t.Helper()
	var text strings.Builder
	for _, tr := range h.Troubles {
		fmt.Fprintf(&text, "%s to %s: %s %s\n", tr.From, tr.To, tr.Action, tr.Target)
	}
	fmt.Fprintf(&text, "begin %d\n", h.Begin)
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Error(err)
	}
}

// do starts the programs, breaks things, and returns what happened, and what has not come to rest.
func (r registryRun) do(t *testing.T) (h *RegistryHistory, unrest []Violation) {
	t.Helper()
	b := r.start(t)
	b.run(t.Context(), r.plan)
	b.awaitUp(startLimit)
	limit := r.rest
	if limit == 0 {
		limit = registryRest
	}
	h, unrest = b.awaitRest(limit)
	return h, unrest
}

// start starts the programs. The cleaner does what replicas do.
func (r registryRun) start(t *testing.T) *registryBreaker {
	t.Helper()
	folder := runFolder(t, filepath.Base(t.Name()))
	f := &fleet{
		t: t, rec: NewRecorder(), folder: folder, cfg: fleetConfig{programs: r.programs, store: r.store},
		proxies:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		programs: map[string]*program{}, ways: map[string]*toxiproxy.Proxy{},
	}
	b := &registryBreaker{loser: &loser{breaker: &breaker{fleet: f}}, begin: Clock(), loses: r.loses, times: max(r.times, 1), logs: map[string]string{}}
	b.more = map[Action]func(context.Context, Breakage){}
	for _, a := range []Action{Kill, Freeze, Stop, Cut, Slow, Hole, Reset, Drop, Full, Flush, Empty, FailOver} {
		b.more[a] = b.breakOne
	}
	b.more[Twin] = b.breakTwin
	switch {
	case r.store != nil:
	case r.loses:
		servers := redistest.NewWithReplicas(t, 1)
		f.redis, b.replica = servers.Server, servers.Replicas[0]
	default:
		f.redis = redistest.New(t, redistest.AppendOnly("always"))
	}
	t.Cleanup(func() {
		for _, way := range f.ways {
			way.Stop()
		}
	})
	for i, name := range registryProviders {
		f.programs[name] = b.provider(name, name, peerPort+10*i*b.times)
	}
	b.twin = b.provider(twinName, registryProviders[0], peerPort)
	for i, name := range registryConsumers {
		args := []string{"-follow", followed[name], "-timeout", registryTimes.Timeout.String()}
		if i > 0 {
			args = append(args, "-snapshots", filepath.Join(folder, "snapshots"))
		}
		f.programs[name] = b.peer(name, args...)
	}
	f.programs["cleaner"] = b.peer("cleaner", "-clean", "web,api", "-limit", registryTimes.Limit.String())
	for _, p := range f.programs {
		p.start()
	}
	f.awaitUp(startLimit)
	return b
}

// registryBreaker notes what it breaks.
type registryBreaker struct {
	*loser
	begin time.Duration
	loses bool
	times int
	twin  *program
	logs  map[string]string // by program
	flags []string          // flags of all peers

	mu       sync.Mutex
	troubles []Trouble // guarded by mu
}

// peer is a registrypeer that does not run.
func (b *registryBreaker) peer(name string, args ...string) *program {
	b.t.Helper()
	b.logs[name] = filepath.Join(b.folder, name+".log")
	return newProgram(b.t, b.rec, b.folder, name, "registrypeer.started",
		append([]string{b.path("registrypeer"), "-name", name, "-redis", b.redisURL(name)}, slices.Concat(b.flags, args)...)...)
}

func (b *registryBreaker) provider(name, as string, port int) *program {
	b.t.Helper()
	services := strings.TrimSuffix(strings.Repeat(provided[as]+",", b.times), ",")
	return b.peer(name, "-as", as, "-provide", services, "-port", strconv.Itoa(port), "-interval", registryTimes.Interval.String())
}

// broken notes what is broken while do runs.
func (b *registryBreaker) broken(target string, action Action, do func()) {
	from := Clock()
	do()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, Trouble{target, action, from - b.begin, Clock() - b.begin})
}

func (b *registryBreaker) breakOne(ctx context.Context, p Breakage) {
	b.broken(p.Target, p.Action, func() {
		switch {
		case p.Action == Flush:
			b.flush(ctx, p)
		case p.Action == Empty:
			b.empty(ctx, p)
		case p.Action == FailOver:
			b.failOver(ctx, p)
		case p.Action == Full:
			b.must(ask(ctx, b.redis.Process(), "CONFIG", "SET", "maxmemory", "1").Error())
			pause(ctx, p.For)
			b.must(ask(ctx, b.redis.Process(), "CONFIG", "SET", "maxmemory", "0").Error())
		case p.Target == redisTarget:
			b.breakRedis(ctx, p)
		case strings.HasPrefix(p.Target, wayPrefix):
			b.breakWay(ctx, p)
		default:
			b.breakProgram(ctx, p)
		}
	})
}

// breakTwin has two processes be the same instances: the later one must win.
func (b *registryBreaker) breakTwin(ctx context.Context, p Breakage) {
	original := b.programs[p.Target]
	b.broken(p.Target, Freeze, func() {
		original.signal(syscall.SIGSTOP)
		b.twin.start()
		pause(ctx, p.For)
		original.signal(syscall.SIGCONT)
	})
	pause(ctx, settle)
	b.broken(p.Target, Kill, func() {
		original.kill()
		original.start()
	})
	pause(ctx, settle)
	b.broken(twinName, Kill, b.twin.kill)
}

// awaitRest waits until each consumer has what there is, and goes on having it: it may not have
// noticed yet what was broken last. Then it ends the programs, and returns what happened.
func (b *registryBreaker) awaitRest(limit time.Duration) (h *RegistryHistory, unrest []Violation) {
	b.t.Helper()
	end, rest := Clock()+limit, Clock()
	for at := Clock(); at < end && at < rest+registryTimes.noticed(); at = Clock() {
		if unrest = b.history().Unrest(); len(unrest) > 0 {
			rest = Clock()
		}
		if !pause(b.t.Context(), lookInterval) {
			break
		}
	}
	over := Clock() - b.begin
	for name := range b.logs {
		if p := b.programs[name]; p != nil { // the twin has ended
			p.kill()
		}
	}
	h = b.history()
	h.End = over
	return h, unrest
}

// limits are those by which a run is judged: with more slack where this process has waited long for a
// processor, as those that are judged have, one after the other.
func (b *registryBreaker) limits() RegistryTimes {
	times := registryTimes
	times.Slack += 4 * time.Duration(machine.longest.Load())
	return times
}

// history is what has happened so far.
func (b *registryBreaker) history() *RegistryHistory {
	b.t.Helper()
	h := &RegistryHistory{RegistryTimes: b.limits(), Loses: b.loses, Begin: b.begin}
	for _, file := range b.logs {
		data, err := os.ReadFile(file)
		if err != nil {
			b.t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e PeerEvent
			if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &e) == nil && e.Kind != "" {
				e.At -= b.begin
				h.Events = append(h.Events, e)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Troubles = slices.Clone(b.troubles)
	return h
}

// summary counts what happened: a run in which no rule had anything to judge would prove nothing.
func (h *RegistryHistory) summary(judged map[string]int) string {
	actions, states := map[Action]int{}, map[string]int{}
	for _, t := range h.Troubles {
		actions[t.Action]++
	}
	superseded := 0
	for _, e := range h.Events {
		switch e.Kind {
		case PeerSaw:
			states[e.List.State]++
		case PeerSuperseded:
			superseded++
		}
	}
	return fmt.Sprintf("%d processes, %d superseded; broken %v; lists %v; judged %v", len(h.lives()), superseded, actions, states, judged)
}
