package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// reserveScript is the yardstick: what the least reservation would do, five commands. It is fixed, so that
// ratios to it can be compared over time.
const reserveScript = `
local profile = redis.call('HMGET', KEYS[1], 'status', 'max', 'used')
redis.call('ZCARD', KEYS[2])
redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[3], 'MAXLEN', '~', 128, '*', 'j', ARGV[2], 'p', ARGV[3])
return redis.call('HINCRBY', KEYS[1], 'used', 1)`

const (
	scriptNodes    = 1000
	scriptCallers  = 8
	scriptReplicas = 4
	scriptJobs     = 4
	// preparation is a turn that is not reported.
	preparation = "preparation"
	// heartbeatOnly is the kind that the target is for.
	heartbeatOnly = "heartbeat, HEARTBEAT_ONLY"
)

// scriptRig is the fleet that the scripts are called for.
type scriptRig struct {
	server  *server
	cell    *cell.Cell
	reserve *rueidis.Lua
	epochs  []cell.Epoch
	running [][]cell.Attempt
}

// scriptKind is one operation: each call is for the i-th node.
type scriptKind struct {
	name string
	call func(ctx context.Context, i int) error
}

func runScripts(ctx context.Context, b *bench) (err error) {
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r := &scriptRig{server: s, reserve: rueidis.NewLuaScript(reserveScript), running: make([][]cell.Attempt, scriptNodes)}
	if r.cell, err = newCell(ctx, s.client); err != nil {
		return err
	}
	defer stopCell(r.cell)
	rounds, calls := sized(b, 30, 2), sized(b, scriptNodes, 200)
	b.say("%s in random order, %d calls a turn by %d goroutines on one connection, %d turns each, one kind after the other in each turn.",
		measure.Plural(scriptNodes, "node"), calls, scriptCallers, rounds)
	b.say("Microseconds inside EVALSHA by Redis' commandstats, the commands that the script calls included; the ratio is the median of those of the turns.")
	b.say("The yardstick: HMGET of 3 fields, ZCARD, ZADD, XADD MAXLEN ~ 128 with 256 bytes, HINCRBY. It tells nobody; the others publish an event. It never carries what a machine has to say.")
	b.say("HEARTBEAT_ONLY, the common one, is held against the target: the node lives, its slots are compared, its revision moves on and is published. METADATA_UPDATE publishes and stores %d bytes of metrics besides, each minute or when they change.", len(benchResources))
	alone, err := r.measure(ctx, rounds, calls)
	if err != nil {
		return err
	}
	stop, err := r.subscribe(ctx)
	if err != nil {
		return err
	}
	watched, err := r.measure(ctx, rounds, calls)
	stop()
	if err != nil {
		return err
	}
	b.target("Redis time of a heartbeat / the 5-command script", result.Times, result.AtMost, 1.1, median(ratios(alone[heartbeatOnly], alone["reserve"])))
	b.target("Redis time of a registration / the 5-command script", result.Times, result.AtMost, 1.8, median(ratios(alone["registration of a restarted agent"], alone["reserve"])))
	b.result.Tables = []result.Table{r.table(alone, watched)}
	return nil
}

func (r *scriptRig) kinds() []scriptKind {
	payload := strings.Repeat("x", 256)
	heartbeat := func(resources []byte) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			_, err := r.cell.Heartbeat(ctx, cell.Heartbeat{Node: benchNodeID(i), Epoch: r.epochs[i], Resources: resources, Running: r.running[i]})
			return err
		}
	}
	register := func(ctx context.Context, n freeslot.Node, i int) error {
		_, err := r.cell.Register(ctx, n, r.epochs[i])
		return err
	}
	return []scriptKind{
		{"reserve", func(ctx context.Context, i int) error {
			id := strconv.Itoa(i)
			keys := []string{"bench:{n}:" + id, "bench:{r}:" + id, "bench:{d}:" + id}
			return r.reserve.Exec(ctx, r.server.client, keys, []string{"1", strconv.Itoa(rand.IntN(1 << 30)), payload}).Error()
		}},
		{heartbeatOnly, heartbeat(nil)},
		{"heartbeat, METADATA_UPDATE", heartbeat([]byte(benchResources))},
		{"registration of a restarted agent", func(ctx context.Context, i int) error {
			r.epochs[i] = cell.NewEpoch()
			return register(ctx, benchNode(i, benchPools), i)
		}},
		{"registration repeated", func(ctx context.Context, i int) error { return register(ctx, benchNode(i, benchPools), i) }},
		{"registration with another profile", func(ctx context.Context, i int) error {
			n := benchNode(i, benchPools)
			n.Labels = map[string]string{"build": strconv.Itoa(rand.IntN(1 << 30))}
			return register(ctx, n, i)
		}},
		{"deregistration", func(ctx context.Context, i int) error {
			_, err := r.cell.Deregister(ctx, benchNodeID(i), r.epochs[i])
			return err
		}},
		{"registration of an unknown node", func(ctx context.Context, i int) error { return register(ctx, benchNode(i, benchPools), i) }},
		{preparation, r.submit},
		{fmt.Sprintf("heartbeat that names %d jobs, HEARTBEAT_ONLY", scriptJobs), heartbeat(nil)},
	}
}

// measure returns the microseconds a call of each kind, one value a turn. The first turn, which brings the
// scripts to Redis, is not counted.
func (r *scriptRig) measure(ctx context.Context, rounds, calls int) (map[string][]float64, error) {
	r.epochs = make([]cell.Epoch, scriptNodes)
	out := make(map[string][]float64)
	for round := range rounds + 1 {
		if err := r.server.do(ctx, "FLUSHALL"); err != nil {
			return nil, err
		}
		clear(r.running)
		if err := registerFleet(ctx, r.cell, scriptNodes, r.epochs); err != nil {
			return nil, err
		}
		for _, k := range r.kinds() {
			us, err := r.turn(ctx, k, calls)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
			if round > 0 {
				out[k.name] = append(out[k.name], us)
			}
		}
	}
	return out, nil
}

// turn calls one kind for the first nodes in random order; each node belongs to one goroutine.
func (r *scriptRig) turn(ctx context.Context, k scriptKind, calls int) (float64, error) {
	order := rand.Perm(calls)
	before, err := measure.ReadRedisStat(ctx, r.server.client)
	if err != nil {
		return 0, err
	}
	var callers sync.WaitGroup
	errs := make([]error, scriptCallers)
	for w := range scriptCallers {
		callers.Go(func() {
			for at := w; at < calls; at += scriptCallers {
				if err := k.call(ctx, order[at]); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	callers.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	after, err := measure.ReadRedisStat(ctx, r.server.client)
	if err != nil {
		return 0, err
	}
	a, z := before.Commands["evalsha"], after.Commands["evalsha"]
	return (z.Usec - a.Usec) / (z.Calls - a.Calls), nil
}

// submit gives a node the jobs that its heartbeat then names. Calls are gathered here, so it says nothing
// about the cost of one.
func (r *scriptRig) submit(ctx context.Context, i int) error {
	for range scriptJobs {
		if err := r.submitOne(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (r *scriptRig) submitOne(ctx context.Context, i int) error {
	s := cell.Submission{JobID: cell.NewJobID(0), Tenant: "bench", Job: benchJob(), Candidates: []string{benchNodeID(i)}}
	p, err := r.cell.Submit(ctx, s)
	if err == nil && !p.Assigned {
		err = fmt.Errorf("not assigned: %v", p.Refusals)
	}
	r.running[i] = append(r.running[i], cell.Attempt{Job: s.JobID, N: p.Attempt})
	return err
}

// subscribe adds what the replicas of a system add: their subscriptions.
func (r *scriptRig) subscribe(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	var clients []rueidis.Client
	stop = func() {
		cancel()
		readers.Wait()
		for _, c := range clients {
			c.Close()
		}
	}
	standing := make(chan struct{}, scriptReplicas)
	for range scriptReplicas {
		c, err := redisclient.Subscriber(redisclient.Config{URL: r.server.URL()})
		if err != nil {
			stop()
			return nil, err
		}
		clients = append(clients, c)
		hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { standing <- struct{}{} })
		readers.Go(func() {
			_ = c.Receive(hooked, c.B().Subscribe().Channel(r.cell.Layout().NodeEvents()).Build(), func(rueidis.PubSubMessage) {})
		})
	}
	for range scriptReplicas {
		select {
		case <-standing:
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}
	}
	return stop, nil
}

func (r *scriptRig) table(alone, watched map[string][]float64) result.Table {
	t := result.Table{First: "Script", Columns: []result.Column{
		{Name: "Redis time a call", Unit: result.Microseconds},
		{Name: "ratio", Unit: result.Times},
		{Name: fmt.Sprintf("with %d subscribers", scriptReplicas), Unit: result.Microseconds},
		{Name: "ratio", Unit: result.Times},
	}}
	for _, k := range r.kinds() {
		if k.name == preparation {
			continue
		}
		t.Rows = append(t.Rows, result.Row{Name: k.name, Values: result.Values(
			rounded(median(alone[k.name])), rounded(median(ratios(alone[k.name], alone["reserve"]))),
			rounded(median(watched[k.name])), rounded(median(ratios(watched[k.name], watched["reserve"]))))})
	}
	return t
}
