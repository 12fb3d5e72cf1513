package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// blockSize is how many choices are timed together: the clock costs about as much as a choice.
	blockSize = 16
	// blocksKept is as many as a window can have.
	blocksKept = 4 << 20
	// feedStep is the pace of events: as many as are due are applied, then the feed sleeps.
	feedStep = 500 * time.Microsecond
)

// The kinds of requirements.
const (
	asksPool = iota
	asksLanguages
	asksLabels
	requirementKinds
)

var requirementNames = [requirementKinds]string{"a pool", "a language pair", "a pool, a service and a label"}

// mix is what clients ask for: of ten, four name a pool, three a language pair, and three a pool, a service and
// a label.
var mix = []int{asksPool, asksPool, asksPool, asksPool, asksLanguages, asksLanguages, asksLanguages, asksLabels, asksLabels, asksLabels}

// requirementsOf are count requirements of these kinds, in turn, shuffled. Each is a value of its own, as if it
// had just been read.
func requirementsOf(count int, kinds ...int) []freeslot.Requirement {
	random := rand.New(rand.NewPCG(1, 2))
	own := strings.Clone
	out := make([]freeslot.Requirement, count)
	for i := range out {
		pool := random.IntN(benchPools)
		switch kinds[i%len(kinds)] {
		case asksPool:
			out[i] = freeslot.Requirement{Pool: own(poolID(pool))}
		case asksLanguages:
			source, target := pair(pool)
			out[i] = freeslot.Requirement{SourceLanguage: own(source), TargetLanguage: own(target)}
		default:
			out[i] = freeslot.Requirement{
				Pool: own(poolID(pool)), Services: []string{own("asr")}, Labels: map[string]string{own("zone"): own("eu-" + string('0'+rune(random.IntN(3))))},
			}
		}
	}
	random.Shuffle(count, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// blockTimer collects how long blocks took, in nanoseconds.
type blockTimer struct{ took []uint32 }

func newBlockTimer() *blockTimer { return &blockTimer{took: make([]uint32, 0, blocksKept)} }

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

// asLong is block so many times over that it takes as long as like does. What interrupts the process comes so many
// times a second: it shows in the slowest thousandth of long blocks and not in that of short ones.
func asLong(t *blockTimer, block, like func()) func() {
	median := func(f func()) float64 {
		t.run(20*time.Millisecond, f)
		return t.at(0.5)
	}
	// Both have the clock's time in them, which is not made longer.
	one, four := median(block), median(repeated(4, block))
	return repeated(1+max(int(3*(median(like)-one)/(four-one)+0.5), 0), block)
}

func repeated(times int, block func()) func() {
	return func() {
		for range times {
			block()
		}
	}
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

// allocations are those of one choice while nothing else runs.
func (c *choices) allocations(blocks int) float64 {
	c.block()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range blocks {
		c.block()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(blocks*blockSize)
}

// flatOut is the rate of a feed that does not pause.
const flatOut = 0

// feed applies messages to p at a rate, in small steps, until the window is over; it returns how many a
// second it applied.
func feed(ctx context.Context, p picture, messages []string, rate int, window time.Duration) (float64, error) {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return 0, err
	}
	defer pace.Close()
	begin, done := time.Now(), 0
	for done < len(messages) {
		elapsed := time.Since(begin)
		if elapsed >= window {
			break
		}
		due := len(messages)
		if rate != flatOut {
			due = min(due, int(elapsed.Seconds()*float64(rate)))
		}
		for done < due && p.apply(messages[done]) {
			if done++; done%64 == 0 && time.Since(begin) >= window {
				break
			}
		}
		if rate == flatOut {
			runtime.Gosched() // no room: the other side has to run
			continue
		}
		if err := pace.Wait(ctx, begin.Add(elapsed+feedStep)); err != nil {
			return 0, err
		}
	}
	p.drain()
	applied := float64(done) / time.Since(begin).Seconds()
	return applied, p.settle(ctx)
}
