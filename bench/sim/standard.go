package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/trace"
	"github.com/freeslot/freeslot/internal/selection"
)

// The standard load of the figures.
const (
	standardRate  = 10_000 // arrivals a second
	standardBusy  = 0.8
	standardEvent = 200.0 // median delay of events, in microseconds
	standardTrip  = 150.0 // median round trip of a call, in microseconds
	// tailFactor is the 99th percentile of a delay over its median.
	tailFactor       = 4
	standardBeat     = 3 * time.Second
	standardDuration = 500 * time.Millisecond
	standardKeys     = 1_000
	longDuration     = 20 * time.Second
)

// Inputs are what the figures are driven by.
type Inputs struct {
	Seed     uint64
	Requests []trace.Request
	Nodes    []trace.Node
	// Quick makes small fleets and few jobs: it shows that a figure can be made, and no more.
	Quick bool
	// Parallel is how many simulations run at once.
	Parallel int
}

// maker makes a figure.
type maker struct {
	name string
	make func(*Inputs) (Figure, error)
}

var makers = []maker{
	{"delay", (*Inputs).delayFigure},
	{"loss", (*Inputs).lossFigure},
	{"size", (*Inputs).sizeFigure},
	{"queue", (*Inputs).queueFigure},
	{"spread", (*Inputs).spreadFigure},
}

// FigureNames are the figures that Make knows.
func FigureNames() []string {
	names := make([]string, len(makers))
	for i, m := range makers {
		names[i] = m.name
	}
	return names
}

// Make runs the simulations of a figure. Its Machine is the caller's to fill in.
func Make(name string, in *Inputs) (Figure, error) {
	i := slices.IndexFunc(makers, func(m maker) bool { return m.name == name })
	if i < 0 {
		return Figure{}, fmt.Errorf("there is no figure %q", name)
	}
	f, err := makers[i].make(in)
	if err != nil {
		return Figure{}, fmt.Errorf("figure %s: %w", name, err)
	}
	f.Name, f.Quick = name, in.Quick
	return f, nil
}

// fleet is the standard configuration of so many nodes (0 is the list's own number), loaded to a share of its
// slots at a rate of arrivals.
func (in *Inputs) fleet(nodes, replicas int, rate, busy float64) Config {
	list := trace.Fleet(in.Nodes, nodes)
	cfg := Config{
		Seed: in.Seed, Replicas: replicas, Slots: make([]int, len(list)),
		Rate: rate, Arrivals: ArrivalsTrace, Durations: DurationsTrace, Requests: in.Requests,
		Jobs: 100_000, WarmUp: 20_000, Prefill: true,
		EventDelay: Skewed(standardEvent, tailFactor*standardEvent), RoundTrip: Skewed(standardTrip, tailFactor*standardTrip),
		Heartbeat: standardBeat,
	}
	for i := range list {
		cfg.Slots[i] = list[i].Slots()
	}
	cfg.ReplyDelay = cfg.EventDelay
	cfg.MeanDuration = time.Duration(busy * float64(trace.TotalSlots(list)) / rate * float64(time.Second))
	if in.Quick {
		cfg.Jobs, cfg.WarmUp = 1_000, 200
	}
	return cfg
}

// nodes and pick make a quick run small.
func (in *Inputs) nodes(n int) int {
	if in.Quick {
		return min(max(n, 20), 100)
	}
	return n
}

func pick[T any](in *Inputs, all []T) []T {
	if in.Quick && len(all) > 2 {
		return []T{all[0], all[len(all)-1]}
	}
	return all
}

// planned is a point whose run is still to be made.
type planned struct {
	line string
	x    float64
	cfg  Config
}

// plot runs all plans, some at once, and makes a line of each name. y reads the coordinate from the result.
func (in *Inputs) plot(plans []planned, y func(*Result) float64) ([]Line, error) {
	results, err := in.runAll(plans)
	if err != nil {
		return nil, err
	}
	var lines []Line
	for i, p := range plans {
		at := slices.IndexFunc(lines, func(l Line) bool { return l.Name == p.line })
		if at < 0 {
			at = len(lines)
			lines = append(lines, Line{Name: p.line})
		}
		lines[at].Points = append(lines[at].Points, Point{X: p.x, Y: y(results[i]), Run: results[i].Summary()})
	}
	return lines, nil
}

func (in *Inputs) delayFigure() (Figure, error) {
	var plans []planned
	for _, replicas := range pick(in, []int{1, 4, 16, 100}) {
		for _, us := range pick(in, []float64{50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000}) {
			cfg := in.fleet(in.nodes(0), replicas, standardRate, standardBusy)
			cfg.EventDelay = Skewed(us, tailFactor*us)
			cfg.ReplyDelay = cfg.EventDelay
			plans = append(plans, planned{line: replicasWords(replicas), x: us / 1000, cfg: cfg})
		}
	}
	lines, err := in.plot(plans, (*Result).Rate)
	return Figure{
		Title: "Conflicts over the delay of events",
		Method: append(in.method(standardRate, standardBusy),
			"The median delay of events varies, and that of completion replies with it; the 99th percentile is four times the median. The round trip of a call stays."),
		X: Axis{Label: "median event delay, ms", Log: true}, Y: Axis{Label: "refused / tried", Log: true, Percent: true}, Lines: lines,
	}, err
}

// lossFigure begins with a loss that a logarithmic axis takes for none.
func (in *Inputs) lossFigure() (Figure, error) {
	const hardlyAny = 0.000_01
	var plans []planned
	for _, fleet := range pick(in, []struct{ nodes, replicas int }{{0, 4}, {0, 16}, {0, 100}, {100_000, 4}}) {
		nodes := in.nodes(fleet.nodes)
		for _, loss := range pick(in, []float64{hardlyAny, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3}) {
			cfg := in.fleet(nodes, fleet.replicas, standardRate, standardBusy)
			cfg.Loss = loss
			plans = append(plans, planned{line: fmt.Sprintf("%s, %d nodes", replicasWords(fleet.replicas), len(cfg.Slots)), x: loss * 100, cfg: cfg})
		}
	}
	lines, err := in.plot(plans, (*Result).Rate)
	return Figure{
		Title: "Conflicts over the loss of events",
		Method: append(in.method(standardRate, standardBusy),
			"Each event is lost on its way to a replica with this probability, independently of others. The next one that comes shows the gap; nothing more is applied then until what changed has been read.",
			"A point without conflicts (of 100,000 jobs) is not drawn."),
		X: Axis{Label: "events lost, %", Log: true}, Y: Axis{Label: "refused / tried", Log: true, Percent: true}, Lines: lines,
	}, err
}

func (in *Inputs) sizeFigure() (Figure, error) {
	var plans []planned
	add := func(line string, nodes, replicas int, rate float64) {
		cfg := in.fleet(nodes, replicas, rate, standardBusy)
		if !in.Quick && replicas < 100 {
			cfg.Jobs = 300_000 // conflicts of a large fleet are rare
		}
		plans = append(plans, planned{line: line, x: float64(nodes), cfg: cfg})
	}
	for _, replicas := range []int{4, 100} {
		for _, n := range pick(in, []int{100, 300, 1_000, 3_000, 10_000, 30_000, 100_000}) {
			n = in.nodes(n)
			slots := float64(trace.TotalSlots(trace.Fleet(in.Nodes, n)))
			add(fmt.Sprintf("%s, %d/s", replicasWords(replicas), standardRate), n, replicas, standardRate)
			add(fmt.Sprintf("%s, jobs of %s", replicasWords(replicas), standardDuration), n, replicas, standardBusy*slots/standardDuration.Seconds())
		}
	}
	lines, err := in.plot(plans, (*Result).Rate)
	return Figure{
		Title: "Conflicts over the size of the fleet",
		Method: append(in.method(standardRate, standardBusy),
			"Either the rate stays, and jobs are the longer the larger the fleet, or the mean duration stays, and the rate grows with the fleet (to 820,000/s).",
			"The rise near 1,000 nodes is the trace's: there its bursts are as long as the jobs, and many nodes are full in them.",
			"A point without conflicts (of 100,000 jobs with 100 replicas, 300,000 with 4) is not drawn."),
		X: Axis{Label: "nodes", Log: true}, Y: Axis{Label: "refused / tried", Log: true, Percent: true}, Lines: lines,
	}, err
}

// nearlyFull is the load at which jobs have to wait: the trace's bursts go beyond all slots.
const nearlyFull = 0.95

func (in *Inputs) queueFigure() (Figure, error) {
	var plans []planned
	for _, busy := range []float64{standardBusy, nearlyFull} {
		for _, replicas := range []int{1, 4, 100} {
			cfg := in.fleet(in.nodes(0), replicas, standardRate, busy)
			cfg.Full = FullWait
			plans = append(plans, planned{line: fmt.Sprintf("%s, %.0f %% busy", replicasWords(replicas), busy*100), cfg: cfg})
		}
	}
	large := in.fleet(in.nodes(100_000), 100, standardRate, standardBusy)
	large.Full = FullWait
	plans = slices.Insert(plans, 3, planned{line: fmt.Sprintf("100 replicas, %d nodes, %.0f %% busy", len(large.Slots), standardBusy*100), cfg: large})
	results, err := in.runAll(plans)
	if err != nil {
		return Figure{}, err
	}
	var lines []Line
	for i, p := range plans {
		lines = append(lines, Line{Name: p.line, Points: tail(results[i].Delay, results[i].Summary())})
	}
	last := results[len(results)-1]
	lines = append(lines, Line{Name: fmt.Sprintf("ideal, %.0f %% busy", nearlyFull*100), Points: tail(last.Ideal, nil)})
	return Figure{
		Title: "Time from arrival to slot, against an ideal central scheduler",
		Method: append(in.method(standardRate, standardBusy),
			"Jobs that find all full wait in Redis, and completions hand them their slots. The same jobs go to an ideal scheduler, which knows all at once and whose calls take no time; at 80 % busy no job ever waits there.",
			"At 95 % the trace's bursts go beyond all slots, and half of the jobs have to wait whoever schedules.",
			"The replicas' times include the call's way to Redis and the wait for the call before."),
		X: Axis{Label: "time from arrival to slot, ms", Log: true}, Y: Axis{Label: "share of jobs that take longer", Log: true, Percent: true}, Lines: lines,
	}, nil
}

// tail is the share of jobs above each time, in milliseconds.
func tail(q Quantiles, run *Summary) []Point {
	points := make([]Point, 0, len(q))
	for _, p := range q {
		points = append(points, Point{X: p.US / 1000, Y: 1 - p.At})
	}
	if len(points) > 0 {
		points[0].Run = run
	}
	return points
}

// halfBusy leaves room for the policies to differ.
const halfBusy = 0.5

func (in *Inputs) spreadFigure() (Figure, error) {
	var plans []planned
	add := func(line string, replicas int, policy selection.Policy, change func(*Config)) {
		for _, d := range []int{1, 2, 4, 8} {
			cfg := in.fleet(in.nodes(0), replicas, standardRate, halfBusy)
			cfg.Policy, cfg.Samples = policy, d
			if change != nil {
				change(&cfg)
			}
			plans = append(plans, planned{line: line, x: float64(d), cfg: cfg})
		}
	}
	add("least loaded, 1 replica, no delay", 1, selection.PolicyLeastLoaded, func(c *Config) { c.EventDelay, c.ReplyDelay, c.RoundTrip = Fixed(0), Fixed(0), Fixed(0) })
	for _, replicas := range pick(in, []int{4, 16, 100}) {
		add("least loaded, "+replicasWords(replicas), replicas, selection.PolicyLeastLoaded, nil)
	}
	add("least loaded, 16 replicas, jobs of 20 s", 16, selection.PolicyLeastLoaded, func(c *Config) {
		c.Rate *= c.MeanDuration.Seconds() / longDuration.Seconds()
		c.MeanDuration = longDuration
		c.Jobs, c.WarmUp = c.Jobs/5, c.WarmUp/5
	})
	add("least loaded, 100 replicas, 100,000 nodes", 100, selection.PolicyLeastLoaded, func(c *Config) {
		large := in.fleet(in.nodes(100_000), 100, standardRate, halfBusy)
		c.Slots, c.MeanDuration = large.Slots, large.MeanDuration
	})
	add("binpack, 4 replicas", 4, selection.PolicyBinpack, nil)
	add(fmt.Sprintf("%d affinity keys, 4 replicas", standardKeys), 4, selection.PolicyLeastLoaded, func(c *Config) { c.Keys = standardKeys })
	lines, err := in.plot(plans, func(r *Result) float64 { return r.Spread.Variation })
	return Figure{
		Title: "Load spread over the number of samples",
		Method: append(in.method(standardRate, halfBusy),
			"Jobs take 0.3 s on average, less than a heartbeat interval, so that replicas know of each other's jobs mostly when nodes become full or free again; jobs of 20 s come at a rate that makes the same load.",
			"Jobs with an affinity key go to their key's node unless it has 1.25 times the average load; all keys are equally frequent.",
			"A node's load is the share of its slots in use. The coefficient of variation over the nodes is taken at 100 moments, and averaged."),
		X: Axis{Label: "nodes sampled for a choice (d)", Log: true}, Y: Axis{Label: "coefficient of variation of load"}, Lines: lines,
	}, err
}

// method is what all figures have in common.
func (in *Inputs) method(rate, busy float64) []string {
	list := trace.Fleet(in.Nodes, in.nodes(0))
	return []string{
		fmt.Sprintf("%d nodes of the list with %d slots (one a GPU) unless said otherwise; %.0f arrivals a second of the trace, with its bursts; durations in proportion to generated tokens so that %.0f %% of slots are busy.",
			len(list), trace.TotalSlots(list), rate, busy*100),
		fmt.Sprintf("Event delay %.0f us, round trip %.0f us (medians; the 99th percentile is four times that); heartbeats every %s; d = 2, two candidates a call, up to four rounds. Seed %d.",
			standardEvent, standardTrip, standardBeat, in.Seed),
	}
}

func replicasWords(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return strconv.Itoa(n) + " replicas"
}
