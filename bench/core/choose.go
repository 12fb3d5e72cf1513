package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// eventRate is how many heartbeat events a second are applied beside the choices.
	eventRate = 20_000
	// requirementCount is the number of requirements that are gone through.
	requirementCount = 1024
	// blockSize is how many choices are timed together: the clock costs about as much as a choice.
	blockSize = 16
	// blocksKept is as many as a window can have.
	blocksKept = 4 << 20
)

// choiceLine is one line of the table.
type choiceLine struct {
	name        string
	nodes, want int
	fed         bool // events are applied beside

	median, p99, p999, longest, applied []float64
	allocations                         float64
}

func runChoose(ctx context.Context, b *tool.Bench) {
	rounds, window := tool.Sized(b, 9, 1), tool.Sized(b, time.Second, 60*time.Millisecond)
	sizes := tool.Sized(b, []int{1_000, 10_000, 100_000}, []int{1_000, 2_000, 3_000})
	b.Say("One goroutine chooses from raw requirements, class look-up included, through the interface that the dispatcher uses; "+
		"of ten, 4 name a pool, 3 a language pair, 3 a pool, a service and a label; %s requirements with strings of their own, "+
		"%d pools, two_level.", measure.Thousands(requirementCount), benchPools)
	b.Say("Beside it %s heartbeat events a second pass the cache's own queue and loop (decode and apply), published in steps of "+
		"%s by another goroutine of this process; the rate really applied is in the table.",
		measure.Thousands(eventRate), feedStep)
	b.Say("Timed in blocks of %d choices, the reading of the clock included; a choice is a block / %d. %d windows of %s for each "+
		"line, in turns; medians over the windows. Allocations are counted without events beside.",
		blockSize, blockSize, rounds, window)
	if bound(func() {}) {
		b.Say("The thread that is timed stays on one processor, whose own caches it finds as it left them; everything else may " +
			"run on any.")
	} else {
		b.Say("The thread that is timed cannot be bound to a processor here: the operating system moves it.")
	}
	requirements, timer := mixedRequirements(), &blockTimer{took: make([]uint32, 0, blocksKept)}
	caches := make(map[int]*fedCache)
	var lines []*choiceLine
	for _, nodes := range sizes {
		f := newFedCache(ctx, nodes)
		defer stopQuietly(f.Stop)
		caches[nodes] = f
		newChoices(f, requirements, 1).all() // builds the candidate lists, which is not what is measured
		lines = append(lines, &choiceLine{name: measure.Thousands(nodes) + " nodes", nodes: nodes, want: 1, fed: true})
	}
	main := measure.Thousands(sizes[1])
	lines = append(lines,
		&choiceLine{name: main + " nodes, no events", nodes: sizes[1], want: 1},
		&choiceLine{name: main + " nodes, two candidates", nodes: sizes[1], want: 2, fed: true})
	for range rounds {
		for _, l := range lines {
			l.window(ctx, caches[l.nodes], requirements, timer, window)
		}
	}
	for _, l := range lines {
		l.allocations = newChoices(caches[l.nodes], requirements, l.want).allocations(tool.Sized(b, 20_000, 500))
	}
	reportChoices(b, lines)
}

// window measures one window of choices, with events beside.
func (l *choiceLine) window(
	ctx context.Context, f *fedCache, requirements []freeslot.Requirement, timer *blockTimer, window time.Duration,
) {
	c := newChoices(f, requirements, l.want)
	c.all()
	var messages []string
	if l.fed { // made before, so that only their application is beside the choices
		messages = f.heartbeats(int(eventRate * 2 * window.Seconds()))
	}
	runtime.GC()
	fed := make(chan error, 1)
	go func() {
		applied, err := f.feed(ctx, messages, eventRate, window)
		l.applied = append(l.applied, applied)
		fed <- err
	}()
	run := func() { timer.run(window, c.block) }
	if !bound(run) {
		run()
	}
	tool.Check(<-fed)
	if c.missed > 0 {
		tool.Check(fmt.Errorf("%s: %d choices found no node", l.name, c.missed))
	}
	l.median = append(l.median, timer.at(0.5)/blockSize)
	l.p99 = append(l.p99, timer.at(0.99)/blockSize)
	l.p999 = append(l.p999, timer.at(0.999)/1000)
	l.longest = append(l.longest, timer.at(1)/1000)
}

func reportChoices(b *tool.Bench, lines []*choiceLine) {
	t := result.NewTable("What", "median a choice [ns]", "p99 a choice [ns]", "p99.9 of a block [us]", "longest block [us]",
		"events applied [/s]", "allocations a choice")
	for _, l := range lines {
		var applied any
		if l.fed {
			applied = measure.Median(l.applied)
		}
		t.Add(l.name, measure.Median(l.median), measure.Median(l.p99), measure.Median(l.p999), measure.Median(l.longest), applied,
			l.allocations)
	}
	b.Result.Tables = []result.Table{t}
	small, main, large := lines[0], lines[1], lines[2]
	at := fmt.Sprintf("choose, %s, %d pools, %s events/s: ", main.name, benchPools, measure.Thousands(eventRate))
	b.Target(at+"median", result.Nanoseconds, result.AtMost, 150, measure.Median(main.median))
	b.Target(at+"allocations", result.Number, result.AtMost, 0, main.allocations)
	b.Target(at+"p99.9 of a block of 16", result.Microseconds, result.AtMost, 20, measure.Median(main.p999))
	b.Target(fmt.Sprintf("choose, %s / %s", large.name, small.name), result.Times, result.AtMost, 4,
		measure.Median(large.median)/measure.Median(small.median))
}

// mixedRequirements are what clients ask for, shuffled: of ten, four name a pool, three a language
// pair, and three a pool, a service and a label. Each is a value of its own, as if it had just been
// read.
func mixedRequirements() []freeslot.Requirement {
	random := rand.New(rand.NewPCG(1, 2))
	own := strings.Clone
	out := make([]freeslot.Requirement, requirementCount)
	for i := range out {
		pool := random.IntN(benchPools)
		switch kind := i % 10; {
		case kind < 4:
			out[i] = freeslot.Requirement{Pool: own(poolID(pool))}
		case kind < 7:
			source, target := pair(pool)
			out[i] = freeslot.Requirement{SourceLanguage: own(source), TargetLanguage: own(target)}
		default:
			zone := fmt.Sprintf("eu-%d", random.IntN(3))
			labels := map[string]string{own("zone"): zone}
			out[i] = freeslot.Requirement{Pool: own(poolID(pool)), Services: []string{own("asr")}, Labels: labels}
		}
	}
	random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// blockTimer collects how long blocks took, in nanoseconds.
type blockTimer struct{ took []uint32 }

// run times block after block until the window is over.
func (t *blockTimer) run(window time.Duration, block func()) {
	t.took = t.took[:0]
	origin := time.Now()
	for last := time.Duration(0); last < window && len(t.took) < cap(t.took); {
		block()
		now := time.Since(origin)
		t.took = append(t.took, uint32(min(now-last, 1<<31)))
		last = now
	}
}

// at is the q-th quantile of a block, in nanoseconds.
func (t *blockTimer) at(q float64) float64 {
	slices.Sort(t.took)
	return float64(t.took[min(int(q*float64(len(t.took))), len(t.took)-1)])
}

// chooser is what a dispatcher asks of a picture of the fleet, by an interface as it does.
type chooser interface {
	Choose(
		dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source,
	) []*selection.Node
	Now() int64
	SilenceLimit() time.Duration
}

// choices makes blocks of choices.
type choices struct {
	from         chooser
	requirements []freeslot.Requirement
	query        selection.Query
	random       *selection.Source
	room         [2]*selection.Node
	at, missed   int
}

func newChoices(from chooser, requirements []freeslot.Requirement, want int) *choices {
	return &choices{
		from: from, requirements: requirements, random: selection.NewSource(1),
		query: selection.Query{Want: want, Slots: 1, SilenceLimit: from.SilenceLimit()},
	}
}

func (c *choices) block() {
	for range blockSize {
		c.query.Now = c.from.Now()
		if len(c.from.Choose(c.room[:0], benchService, &c.requirements[c.at], &c.query, c.random)) == 0 {
			c.missed++
		}
		if c.at++; c.at == len(c.requirements) {
			c.at = 0
		}
	}
}

// all goes through the requirements once.
func (c *choices) all() {
	for range len(c.requirements) / blockSize {
		c.block()
	}
}

// allocations is the number of allocations of one choice while nothing else runs.
func (c *choices) allocations(blocks int) float64 {
	c.block()
	allocations := measure.Allocations(func() {
		for range blocks {
			c.block()
		}
	})
	return float64(allocations) / float64(blocks*blockSize)
}
