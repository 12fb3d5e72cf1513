package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	// eventRate is how many heartbeat events a second are applied beside the choices.
	eventRate = 20_000
	// requirementCount is the number of requirements that are gone through.
	requirementCount = 1024
)

// choiceRun is one line of the table of choices.
type choiceRun struct {
	name  string
	nodes int
	rate  int // of events a second
	want  int
	kinds []int  // of requirements; nil is the mix
	fed   bool   // with events even if rate is flatOut
	bare  bool   // bare sampling, as often as makes the block as long as one of choices
	moved bool   // from processor to processor, as the operating system likes
	plain func() // what is measured if nothing is chosen and nothing happens beside

	median, p99, p999, longest, applied []float64
	missed                              int
	allocations                         float64
}

func runChoose(ctx context.Context, b *bench) error {
	rounds, window := sized(b, 9, 1), sized(b, time.Second, 60*time.Millisecond)
	sizes := sized(b, []int{1_000, 10_000, 100_000}, []int{1_000, 2_000})
	main, large := sizes[1], sizes[len(sizes)-1]
	b.say("One goroutine chooses from raw requirements, class lookup included, through the interface that the dispatcher uses; of ten, 4 name a pool, 3 a language pair, 3 a pool, a service and a label; %s requirements with strings of their own, %d pools, two_level.",
		measure.Thousands(requirementCount), benchPools)
	b.say("Beside it %s heartbeat events a second pass the cache's own queue and loop (decode and apply), published in steps of %s by another goroutine of this process; the rate really applied is in the table.", measure.Thousands(eventRate), feedStep)
	b.say("Timed in blocks of %d choices, the reading of the clock included; a choice is a block / %d. %d windows of %s for each line, in turns; medians over the windows. Allocations are counted without events beside.", blockSize, blockSize, rounds, window)
	canBind := b.sayBound()
	b.say("A choice reads a list and then two nodes, and the more nodes, the farther from the processor they are: the reads of a chain of as many cache lines as there are nodes show what one of them takes.")
	b.say("Interruptions come so many a second: where that is more than one in a thousand blocks, the p99.9 is theirs. Bare sampling, repeated until its blocks are as long as those of choices and with the same events beside, shows what the machine does by itself.")
	caches := make(map[int]*cachePicture)
	defer func() {
		for _, p := range caches {
			p.stop()
		}
	}()
	for _, nodes := range sizes {
		f, err := newFedCache(ctx, fleetStates(nodes))
		if err != nil {
			return err
		}
		caches[nodes] = &cachePicture{fedCache: f, nodes: nodes}
	}
	var runs []*choiceRun
	for _, nodes := range sizes {
		runs = append(runs, &choiceRun{name: "one read of a chain of " + measure.Thousands(float64(nodes)) + " cache lines", plain: newChase(nodes)})
	}
	bare := make(map[int]func())
	for _, nodes := range sizes {
		bare[nodes] = newBarePicture(nodes).blocks()
		runs = append(runs, &choiceRun{name: "bare sampling of two of " + measure.Thousands(float64(nodes)) + " nodes, no requirement, no events", plain: bare[nodes]})
	}
	for _, nodes := range sizes {
		runs = append(runs, &choiceRun{name: measure.Thousands(float64(nodes)) + " nodes", nodes: nodes, rate: eventRate, want: 1})
	}
	runs = append(runs,
		&choiceRun{name: measure.Thousands(float64(main)) + " nodes, no events", nodes: main, want: 1},
		&choiceRun{name: measure.Thousands(float64(main)) + " nodes, two candidates", nodes: main, rate: eventRate, want: 2},
		&choiceRun{name: measure.Thousands(float64(large)) + " nodes, two candidates", nodes: large, rate: eventRate, want: 2})
	if canBind {
		b.say("Some lines say what choices take on a thread that the operating system moves as it likes: it leaves behind what it has read.")
		for _, nodes := range sizes {
			runs = append(runs, &choiceRun{name: measure.Thousands(float64(nodes)) + " nodes, on a thread that is moved", nodes: nodes, rate: eventRate, want: 1, moved: true})
		}
	}
	for kind, name := range requirementNames {
		runs = append(runs, &choiceRun{name: measure.Thousands(float64(main)) + " nodes, no events, all ask for " + name, nodes: main, want: 1, kinds: []int{kind}})
	}
	runs = append(runs,
		&choiceRun{name: "bare sampling in blocks as long as those of choices, no events", nodes: main, bare: true},
		&choiceRun{name: fmt.Sprintf("bare sampling in blocks as long as those of choices, %s events/s", measure.Thousands(eventRate)), nodes: main, rate: eventRate, bare: true})
	timer, requirements := newBlockTimer(), requirementsOf(requirementCount, mix...)
	for _, p := range caches {
		newChoices(p, requirements, 1).all() // builds the candidate lists, which is not what is measured
	}
	var long func()
	calibrate := func() { long = asLong(timer, bare[main], newChoices(caches[main], requirements, 1).block) }
	if !bound(calibrate) {
		calibrate()
	}
	stop, err := b.startProfile()
	if err != nil {
		return err
	}
	defer stop()
	for range rounds {
		for _, r := range runs {
			asked := requirements
			if r.kinds != nil {
				asked = requirementsOf(requirementCount, r.kinds...)
			}
			var err error
			switch {
			case r.bare:
				err = r.beside(ctx, caches[r.nodes], timer, window, long)
			case r.plain != nil:
				r.note(timer, window, r.plain)
			default:
				err = r.window(ctx, caches[r.nodes], asked, timer, window)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, r := range runs {
		if r.want == 0 {
			continue
		}
		r.allocations = newChoices(caches[r.nodes], requirements, r.want).allocations(sized(b, 20_000, 500))
	}
	return reportChoices(b, runs)
}

// window measures one window of choices with events beside.
func (r *choiceRun) window(ctx context.Context, p picture, requirements []freeslot.Requirement, timer *blockTimer, window time.Duration) error {
	c := newChoices(p, requirements, r.want)
	c.all()
	err := r.beside(ctx, p, timer, window, c.block)
	r.missed += c.missed
	return err
}

// beside measures one window of blocks with the run's events beside.
func (r *choiceRun) beside(ctx context.Context, p picture, timer *blockTimer, window time.Duration, block func()) error {
	// Room for a feed that is a little late, and for lists that have to be built first.
	due := r.rate * int(2*window/time.Millisecond) / 1000
	if r.rate == flatOut && r.fed {
		due = int(flatOutMessages * min(window.Seconds(), 1))
	}
	messages := p.beats(due)
	runtime.GC()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var applied float64
	var err error
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if len(messages) > 0 {
			applied, err = feed(ctx, p, messages, r.rate, window)
		}
	}()
	r.note(timer, window, block)
	<-fed
	r.applied = append(r.applied, applied)
	return err
}

// note times blocks for a window.
func (r *choiceRun) note(timer *blockTimer, window time.Duration, block func()) {
	run := func() { timer.run(window, block) }
	if r.moved || !bound(run) {
		runtime.LockOSThread() // as one that is bound
		defer runtime.UnlockOSThread()
		run()
	}
	r.median = append(r.median, timer.at(0.5)/blockSize)
	r.p99 = append(r.p99, timer.at(0.99)/blockSize)
	r.p999 = append(r.p999, timer.at(0.999)/1000)
	r.longest = append(r.longest, timer.at(1)/1000)
}

func reportChoices(b *bench, runs []*choiceRun) error {
	t := result.Table{First: "What", Columns: []result.Column{
		{Name: "median a choice", Unit: result.Nanoseconds},
		{Name: "p99 a choice", Unit: result.Nanoseconds},
		{Name: "p99.9 of a block", Unit: result.Microseconds},
		{Name: "longest block", Unit: result.Microseconds},
		{Name: "events applied", Unit: result.PerSecond},
		{Name: "allocations a choice", Unit: result.Number},
	}}
	var failed error
	for _, r := range runs {
		values := result.Values(rounded(median(r.median)), rounded(median(r.p99)), rounded(median(r.p999)), rounded(median(r.longest)),
			rounded(median(append(r.applied, 0)[:max(len(r.applied), 1)])), rounded(r.allocations))
		if r.want == 0 {
			values[5] = nil
		}
		if len(r.applied) == 0 {
			values[4] = nil
		}
		t.Rows = append(t.Rows, result.Row{Name: r.name, Values: values})
		if r.missed > 0 {
			failed = errors.Join(failed, fmt.Errorf("%s: %d choices found no node", r.name, r.missed))
		}
	}
	b.result.Tables = []result.Table{t}
	small, main, large := wanted(runs)
	at := fmt.Sprintf("choose, %s nodes, %d pools, %s events/s: ", measure.Thousands(float64(main.nodes)), benchPools, measure.Thousands(eventRate))
	b.target(at+"median", result.Nanoseconds, result.AtMost, 60, median(main.median))
	b.target(at+"allocations", result.Number, result.AtMost, 0, main.allocations)
	b.target(at+"p99.9 of a block of 16", result.Microseconds, result.AtMost, 20, median(main.p999))
	b.target(fmt.Sprintf("choose, %s nodes / %s nodes", measure.Thousands(float64(large.nodes)), measure.Thousands(float64(small.nodes))),
		result.Times, result.AtMost, 2, median(ratios(large.median, small.median)))
	return failed
}

// wanted are the choices of one node on the smallest, the next and the largest fleet, with events beside, timed alike.
func wanted(runs []*choiceRun) (small, main, large *choiceRun) {
	var all []*choiceRun
	for _, r := range runs {
		if r.want == 1 && r.rate > 0 && !r.moved {
			all = append(all, r)
		}
	}
	return all[0], all[1], all[len(all)-1]
}

// blocks chooses as little as can be chosen.
func (p *barePicture) blocks() func() {
	random := selection.NewSource(1)
	var sum int64
	return func() {
		for range blockSize {
			list := *p.list.Load()
			draw := random.Uint64()
			a := list[uint64(uint32(draw))*uint64(len(list))>>32]
			z := list[(draw>>32)*uint64(len(list))>>32]
			x, y := a.used.Load(), z.used.Load()
			sum += min(x, y)
		}
	}
}

// sayBound says whether bound can do what it says, and reports it.
func (b *bench) sayBound() bool {
	can := bound(func() {})
	if can {
		b.say("The thread that is timed stays on one processor, whose own caches it finds as it left them; everything else may run on any.")
	} else {
		b.say("The thread that is timed cannot be bound to a processor here: it is moved as the operating system likes.")
	}
	return can
}

// startProfile begins the CPU profile that was asked for, if any.
func (b *bench) startProfile() (stop func(), err error) {
	if b.profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that is incomplete cannot be read
	}, nil
}
