package main

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
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
	ask   func(ctx context.Context, ids []string, yes []bool) (unknown int)

	pid int // of its Redis

	members, strangers []float64 // checks a second in each round
	server, client     []float64 // us of processor time for a member
	wrong, unknown     int
}

func runAsk(ctx context.Context, b *tool.Bench, d *bed) {
	d.list(ctx, b)
	strange := tool.Sized(b, strangers, d.ids/10)
	b.Say("All %s members and %s strangers are asked once each, in random order, of each in turn: in each of %d rounds a part "+
		"of them. At most %s checks are under way at once, on one connection, in pipelines of %d: ours by two callers of "+
		"`CheckAll`, the others by four callers of a pipeline each. Of ours a stranger goes to Redis only where the filter "+
		"lets it pass.", thousands(d.ids), thousands(strange), d.rounds, thousands(inFlight), pipeline)
	b.Say("HEXISTS: one hash with empty values. SISMEMBER: one set. Bloom filter: a string with 1 %% false positives, made by " +
		"bits-and-blooms and asked by one BITFIELD_RO for all bits of an id, since Redis without modules has no filters. They " +
		"are on a server of their own; bytes are the growth of its used_memory.")
	list, stop := d.loaded(ctx, bigList)
	defer tool.End(stop)
	peers := tool.Must(system.StartRedis(ctx, system.AOFOff))
	defer tool.End(peers.Stop)
	ours := &entrant{name: "freeslot", pid: d.data.PID(), bytes: d.big.bytes / float64(d.ids), ask: askOurs(list)}
	all := []*entrant{ours}
	for _, open := range []func(context.Context, *system.Redis, int) *entrant{openHash, openSet, openBloom} {
		all = append(all, open(ctx, peers, d.ids))
		b.Progress("%s has the ids", all[len(all)-1].name)
	}
	members, strangers := shuffled(0, d.ids), shuffled(d.ids, strange)
	part := func(numbers []int, round int) []string {
		return idsOf(numbers[round*len(numbers)/d.rounds : (round+1)*len(numbers)/d.rounds])
	}
	tool.InTurns(b, d.rounds, all, func(e *entrant, round int) {
		e.round(ctx, part(members, round), part(strangers, round))
	})
	t := result.NewTable("In Redis", "bytes a member [B]", "members [/s]", "Redis, CPU each [us]", "client, CPU each [us]",
		"strangers [/s]", "wrong answers", "no answer")
	for _, e := range all {
		t.Add(e.name, e.bytes, measure.Median(e.members), measure.Median(e.server), measure.Median(e.client),
			measure.Median(e.strangers), e.wrong, e.unknown)
	}
	b.Result.Tables = []result.Table{t}
	rates := make([]float64, d.rounds)
	for i := range rates {
		rates[i] = ours.members[i] / all[1].members[i]
	}
	b.Target("exact checks of members, pipelined on one connection", result.PerSecond, result.AtLeast, 300_000,
		measure.Median(ours.members))
	b.Target("exact checks of members / HEXISTS on one hash", result.Times, result.AtLeast, 0.5, measure.Median(rates))
	b.Target("wrong answers among all members and "+thousands(strange)+" strangers", result.Number, result.Exactly, 0,
		float64(ours.wrong))
	b.Target("of them without an answer", result.Number, result.Exactly, 0, float64(ours.unknown))
}

// round asks for members and then for strangers.
func (e *entrant) round(ctx context.Context, members, strangers []string) {
	server, client := tool.Must(system.NewMeter(ctx, nil, e.pid)), tool.Must(system.NewMeter(ctx, nil, os.Getpid()))
	e.members = append(e.members, e.timed(ctx, members, true))
	us := 1e6 / float64(len(members))
	e.server = append(e.server, us*tool.Must(server.Spent(ctx)).Processes)
	e.client = append(e.client, us*tool.Must(client.Spent(ctx)).Processes)
	e.strangers = append(e.strangers, e.timed(ctx, strangers, false))
}

func (e *entrant) timed(ctx context.Context, ids []string, want bool) (rate float64) {
	yes := make([]bool, len(ids))
	begin := time.Now()
	unknown := e.ask(ctx, ids, yes)
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
	return rate
}

// spread has callers ask for ids, a slice of so many at a time.
func spread(ids []string, callers, each int, do func(from, to int) (unknown int)) int {
	var unknown atomic.Int64
	tool.Together(callers, (len(ids)+each-1)/each, func(i int) {
		unknown.Add(int64(do(i*each, min((i+1)*each, len(ids)))))
	})
	return int(unknown.Load())
}

func askOurs(list *namelist.List) func(context.Context, []string, []bool) int {
	return func(ctx context.Context, ids []string, yes []bool) int {
		// A call has two pipelines under way.
		return spread(ids, inFlight/pipeline/2, sliceOf, func(from, to int) (unknown int) {
			for i, a := range list.CheckAll(ctx, ids[from:to]) {
				yes[from+i] = a.Verdict == namelist.Yes
				if a.Verdict == namelist.Unknown {
					unknown++
				}
			}
			tool.Check(ctx.Err())
			return unknown
		})
	}
}

// askRedis asks by a command for each id, whose answers is reads.
func askRedis(
	redis *system.Redis, command func(id string) rueidis.Completed, is func(rueidis.RedisResult) (bool, error),
) func(context.Context, []string, []bool) int {
	return func(ctx context.Context, ids []string, yes []bool) int {
		return spread(ids, inFlight/pipeline, pipeline, func(from, to int) int {
			ctx, cancel := context.WithTimeout(ctx, stepLimit)
			defer cancel()
			commands := make(rueidis.Commands, to-from)
			for i := range commands {
				commands[i] = command(ids[from+i])
			}
			for i, r := range redis.Client.DoMulti(ctx, commands...) {
				yes[from+i] = tool.Must(is(r))
			}
			return 0
		})
	}
}

func asBool(r rueidis.RedisResult) (bool, error) { return r.AsBool() }

// filled has fill add what an entrant keeps, and measures it.
func filled(ctx context.Context, redis *system.Redis, ids int, e *entrant, fill func()) *entrant {
	before := usedMemory(ctx, redis)
	fill()
	e.pid, e.bytes = redis.PID(), (usedMemory(ctx, redis)-before)/float64(ids)
	return e
}

// addAll sends a command for each piece of the ids.
func addAll(ctx context.Context, redis *system.Redis, ids int, command func(ids []string) rueidis.Completed) {
	send := func(commands rueidis.Commands) {
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		for _, r := range redis.Client.DoMulti(ctx, commands...) {
			tool.Check(r.Error())
		}
	}
	for from := 0; from < ids; {
		commands := make(rueidis.Commands, 0, addCalls)
		for ; from < ids && len(commands) < addCalls; from += addAtOnce {
			piece := make([]string, min(addAtOnce, ids-from))
			for i := range piece {
				piece[i] = idOf(from + i)
			}
			commands = append(commands, command(piece))
		}
		send(commands)
	}
}

func openHash(ctx context.Context, redis *system.Redis, ids int) *entrant {
	e := &entrant{name: "HEXISTS on one hash", ask: askRedis(redis, func(id string) rueidis.Completed {
		return redis.Client.B().Hexists().Key(hashKey).Field(id).Build()
	}, asBool)}
	return filled(ctx, redis, ids, e, func() {
		addAll(ctx, redis, ids, func(ids []string) rueidis.Completed {
			pairs := redis.Client.B().Hset().Key(hashKey).FieldValue()
			for _, id := range ids {
				pairs = pairs.FieldValue(id, "")
			}
			return pairs.Build()
		})
	})
}

func openSet(ctx context.Context, redis *system.Redis, ids int) *entrant {
	e := &entrant{name: "SISMEMBER on one set", ask: askRedis(redis, func(id string) rueidis.Completed {
		return redis.Client.B().Sismember().Key(setKey).Member(id).Build()
	}, asBool)}
	return filled(ctx, redis, ids, e, func() {
		addAll(ctx, redis, ids, func(ids []string) rueidis.Completed {
			return redis.Client.B().Sadd().Key(setKey).Member(ids...).Build()
		})
	})
}

func openBloom(ctx context.Context, redis *system.Redis, ids int) *entrant {
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
	return filled(ctx, redis, ids, e, func() {
		text := make([]byte, (bits+7)/8)
		for i := range ids {
			for _, at := range bloom.Locations(appendID(nil, i), hashes) {
				at %= uint64(bits)
				text[at/8] |= 0x80 >> (at % 8) // as SETBIT counts them
			}
		}
		ctx, cancel := context.WithTimeout(ctx, stepLimit)
		defer cancel()
		set := redis.Client.B().Set().Key(bloomKey).Value(rueidis.BinaryString(text)).Build()
		tool.Check(redis.Client.Do(ctx, set).Error())
	})
}
