package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/namelist"
)

const (
	strangers = 1_000_000
	// inFlight is how many checks wait for Redis: no more than a client allows.
	inFlight = 1024
	pipeline = 256
	// sliceOf is how many ids a caller of CheckAll asks at a time.
	sliceOf = 16 * pipeline
	// addAtOnce is how many members one command adds, and addCalls how many are sent at a time.
	addAtOnce, addCalls = 500, 8
	bloomShare          = 0.01
	hashKey             = "hash"
	setKey              = "set"
	bloomKey            = "bloom"
)

// entrant is one way to keep the ids. ask sets yes[i] for ids[i], and returns how many it could not
// answer.
type entrant struct {
	name  string
	bytes float64
	ask   func(ctx context.Context, ids []string, yes []bool) (unknown int, err error)

	pid int // of its Redis

	members, strangers []float64 // checks a second in each round
	server, client     []float64 // us of processor time for a member
	wrong, unknown     int
}

func runAsk(ctx context.Context, b *tool.Bench, d *bed) (err error) {
	if err := d.list(ctx, b); err != nil {
		return err
	}
	strange := tool.Sized(b, strangers, d.ids/10)
	b.Say("All %s members and %s strangers are asked once each, in random order, of each in turn: in each of %d rounds a part of them. At most %s checks are under way at once, on one connection, in pipelines of %d: ours by two callers of `CheckAll`, the others by four callers of a pipeline each. Of ours a stranger goes to Redis only where the filter lets it pass.", thousands(d.ids), thousands(strange), d.rounds, thousands(inFlight), pipeline)
	b.Say("HEXISTS: one hash with empty values. SISMEMBER: one set. Bloom filter: a string with 1 %% false positives, made by bits-and-blooms and asked by one BITFIELD_RO for all bits of an id, since Redis without modules has no filters. They are on a server of their own; bytes are the growth of its used_memory.")
	client, err := openClient(d.control.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeClient(client)) }()
	list := client.List(bigList)
	ready, cancel := context.WithTimeout(ctx, seenLimit)
	err = list.WaitReady(ready)
	cancel()
	if err != nil {
		return err
	}
	peers, err := system.StartRedis(ctx, system.AOFOff)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peers.Stop()) }()
	ours := &entrant{name: "freeslot", pid: d.data.PID(), bytes: d.big.bytes / float64(d.ids), ask: askOurs(list)}
	all := []*entrant{ours}
	for _, open := range []func(context.Context, *system.Redis, int) (*entrant, error){openHash, openSet, openBloom} {
		e, err := open(ctx, peers, d.ids)
		if err != nil {
			return err
		}
		all = append(all, e)
		b.Progress("%s has the ids", e.name)
	}
	members, strangers := shuffled(0, d.ids), shuffled(d.ids, strange)
	for round := range d.rounds {
		part := func(numbers []int) []string {
			return idsOf(numbers[round*len(numbers)/d.rounds : (round+1)*len(numbers)/d.rounds])
		}
		inside, outside := part(members), part(strangers)
		for i := range all {
			e := all[(i+round)%len(all)]
			if err := e.round(ctx, inside, outside); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
		b.Progress("round %d of %d", round+1, d.rounds)
	}
	b.Result.Tables = []result.Table{askTable(all)}
	rates := make([]float64, d.rounds)
	for i := range rates {
		rates[i] = ours.members[i] / all[1].members[i]
	}
	b.Target("exact checks of members, pipelined on one connection", result.PerSecond, result.AtLeast, 300_000, measure.Median(ours.members))
	b.Target("exact checks of members / HEXISTS on one hash", result.Times, result.AtLeast, 0.5, measure.Median(rates))
	b.Target("wrong answers among all members and "+thousands(strange)+" strangers", result.Number, result.Exactly, 0, float64(ours.wrong))
	b.Target("of them without an answer", result.Number, result.Exactly, 0, float64(ours.unknown))
	return nil
}

func askTable(all []*entrant) result.Table {
	t := result.Table{First: "In Redis", Columns: []result.Column{
		{Name: "bytes a member", Unit: result.Bytes}, {Name: "members", Unit: result.PerSecond}, {Name: "Redis, CPU each", Unit: result.Microseconds}, {Name: "client, CPU each", Unit: result.Microseconds}, {Name: "strangers", Unit: result.PerSecond}, {Name: "wrong answers"}, {Name: "no answer"},
	}}
	for _, e := range all {
		t.Rows = append(t.Rows, result.Row{Name: e.name, Figures: result.Figures(
			measure.FourFigures(e.bytes), measure.FourFigures(measure.Median(e.members)), measure.FourFigures(measure.Median(e.server)), measure.FourFigures(measure.Median(e.client)), measure.FourFigures(measure.Median(e.strangers)), float64(e.wrong), float64(e.unknown),
		)})
	}
	return t
}

// round asks for members and then for strangers.
func (e *entrant) round(ctx context.Context, members, strangers []string) error {
	server, client, err := e.cpu()
	if err != nil {
		return err
	}
	rate, err := e.timed(ctx, members, true)
	if err != nil {
		return err
	}
	e.members = append(e.members, rate)
	serverAfter, clientAfter, err := e.cpu()
	if err != nil {
		return err
	}
	us := 1e6 / float64(len(members))
	e.server, e.client = append(e.server, us*(serverAfter-server)), append(e.client, us*(clientAfter-client))
	rate, err = e.timed(ctx, strangers, false)
	e.strangers = append(e.strangers, rate)
	return err
}

// cpu is what Redis and this process have used so far, in seconds.
func (e *entrant) cpu() (server, client float64, err error) {
	if server, err = measure.CPUSeconds(e.pid); err == nil {
		client, err = measure.CPUSeconds(os.Getpid())
	}
	return server, client, err
}

func (e *entrant) timed(ctx context.Context, ids []string, want bool) (rate float64, err error) {
	yes := make([]bool, len(ids))
	begin := time.Now()
	unknown, err := e.ask(ctx, ids, yes)
	rate = float64(len(ids)) / time.Since(begin).Seconds()
	e.unknown += unknown
	for _, is := range yes {
		if is != want {
			e.wrong++
		}
	}
	if want {
		e.wrong -= unknown // they have no answer
	}
	return rate, err
}

// spread has callers ask for ids, a slice of so many at a time.
func spread(ids []string, callers, each int, do func(from, to int) (unknown int, err error)) (int, error) {
	unknown, errs := make([]int, callers), make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for from := c * each; from < len(ids) && errs[c] == nil; from += callers * each {
				var n int
				n, errs[c] = do(from, min(from+each, len(ids)))
				unknown[c] += n
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range unknown {
		sum += n
	}
	return sum, errors.Join(errs...)
}

func askOurs(list *namelist.List) func(context.Context, []string, []bool) (int, error) {
	return func(ctx context.Context, ids []string, yes []bool) (int, error) {
		// A call has two pipelines under way.
		return spread(ids, inFlight/pipeline/2, sliceOf, func(from, to int) (unknown int, err error) {
			for i, a := range list.CheckAll(ctx, ids[from:to]) {
				yes[from+i] = a.Verdict == namelist.Yes
				if a.Verdict == namelist.Unknown {
					unknown++
				}
			}
			return unknown, ctx.Err()
		})
	}
}

// askRedis asks by a command for each id, whose answers is reads.
func askRedis(redis *system.Redis, command func(id string) rueidis.Completed, is func(rueidis.RedisResult) (bool, error)) func(context.Context, []string, []bool) (int, error) {
	return func(ctx context.Context, ids []string, yes []bool) (int, error) {
		return spread(ids, inFlight/pipeline, pipeline, func(from, to int) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, stepLimit)
			defer cancel()
			commands := make(rueidis.Commands, to-from)
			for i := range commands {
				commands[i] = command(ids[from+i])
			}
			for i, r := range redis.Client.DoMulti(ctx, commands...) {
				var err error
				if yes[from+i], err = is(r); err != nil {
					return 0, err
				}
			}
			return 0, nil
		})
	}
}

func asBool(r rueidis.RedisResult) (bool, error) { return r.AsBool() }

// filled has fill add what an entrant keeps, and measures it.
func filled(ctx context.Context, redis *system.Redis, ids int, e *entrant, fill func() error) (*entrant, error) {
	before, err := usedMemory(ctx, redis)
	if err != nil {
		return nil, err
	}
	if err := fill(); err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	after, err := usedMemory(ctx, redis)
	e.pid = redis.PID()
	e.bytes = (after - before) / float64(ids)
	return e, err
}

// addAll sends a command for each piece of the ids.
func addAll(ctx context.Context, redis *system.Redis, ids int, command func(ids []string) rueidis.Completed) error {
	for from := 0; from < ids; {
		commands := make(rueidis.Commands, 0, addCalls)
		for ; from < ids && len(commands) < addCalls; from += addAtOnce {
			piece := make([]string, min(addAtOnce, ids-from))
			for i := range piece {
				piece[i] = idOf(from + i)
			}
			commands = append(commands, command(piece))
		}
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, stepLimit)
			defer cancel()
			for _, r := range redis.Client.DoMulti(ctx, commands...) {
				if err := r.Error(); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

func openHash(ctx context.Context, redis *system.Redis, ids int) (*entrant, error) {
	e := &entrant{name: "HEXISTS on one hash", ask: askRedis(redis, func(id string) rueidis.Completed {
		return redis.Client.B().Hexists().Key(hashKey).Field(id).Build()
	}, asBool)}
	return filled(ctx, redis, ids, e, func() error {
		return addAll(ctx, redis, ids, func(ids []string) rueidis.Completed {
			pairs := redis.Client.B().Hset().Key(hashKey).FieldValue()
			for _, id := range ids {
				pairs = pairs.FieldValue(id, "")
			}
			return pairs.Build()
		})
	})
}

func openSet(ctx context.Context, redis *system.Redis, ids int) (*entrant, error) {
	e := &entrant{name: "SISMEMBER on one set", ask: askRedis(redis, func(id string) rueidis.Completed {
		return redis.Client.B().Sismember().Key(setKey).Member(id).Build()
	}, asBool)}
	return filled(ctx, redis, ids, e, func() error {
		return addAll(ctx, redis, ids, func(ids []string) rueidis.Completed {
			return redis.Client.B().Sadd().Key(setKey).Member(ids...).Build()
		})
	})
}

func openBloom(ctx context.Context, redis *system.Redis, ids int) (*entrant, error) {
	bits, hashes := bloom.EstimateParameters(uint(ids), bloomShare)
	e := &entrant{name: "Bloom filter in Redis", ask: askRedis(redis, func(id string) rueidis.Completed {
		args := make([]string, 0, 3*hashes)
		for _, at := range bloom.Locations([]byte(id), hashes) {
			args = append(args, "GET", "u1", strconv.FormatUint(at%uint64(bits), 10))
		}
		return redis.Client.B().Arbitrary("BITFIELD_RO").Keys(bloomKey).Args(args...).ReadOnly()
	}, func(r rueidis.RedisResult) (bool, error) {
		got, err := r.AsIntSlice()
		return !slices.Contains(got, 0), err
	})}
	return filled(ctx, redis, ids, e, func() error {
		text := make([]byte, (bits+7)/8)
		for i := range ids {
			for _, at := range bloom.Locations(appendID(nil, i), hashes) {
				at %= uint64(bits)
				text[at/8] |= 0x80 >> (at % 8) // as SETBIT counts them
			}
		}
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		return redis.Client.Do(ctx, redis.Client.B().Set().Key(bloomKey).Value(rueidis.BinaryString(text)).Build()).Error()
	})
}
