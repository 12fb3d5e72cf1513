package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

const (
	conflictRate   = 10_100 // arrivals are random, and conflictsAsked is the least
	conflictsAsked = 10_000
	// carriedRate is what two cores carry with time to spare; the simulation is held against it.
	carriedRate = 6_000
	probeNodes  = 16
	probePace   = 10 * time.Millisecond
	busySample  = 250 * time.Millisecond
	// startDelay is until the first arrival, so that all replicas begin together.
	startDelay = 300 * time.Millisecond
	// slotLost is about how long a slot is taken beside the job's own time: until its stream is read, and for
	// the completion.
	slotLost = 56.0
	// raisedNice is Redis' priority. It has a processor of its own wherever such loads are carried; beside six
	// processes that take all they get it has a third of one.
	raisedNice = -15
	// agentsNice is that of the nodes, which are machines of their own too: when all of them stand still for a
	// tenth of a second the fleet is full.
	agentsNice = -10
	// childProcs is how many processors Go uses in each replica and for the nodes, six processes that share two.
	childProcs = 1
)

// conflictRun is one load.
type conflictRun struct {
	name  string
	share float64
	rate  int
	file  string // for the simulation
	// endings says that replicas note when they hear of ends: not at the machine's limit.
	endings bool
	// raised says that Redis had its priority.
	raised bool
	out    conflictOutcome
}

// conflictOutcome is what was measured in the window, and at the end.
type conflictOutcome struct {
	sum      submitterFigures
	late     sim.Quantiles
	delay    sim.Quantiles // of events, whether or not somebody chose meanwhile
	agents   agentFigures
	accepted int64 // of the whole run
	measured sim.Measured
}

// arrived is the rate of submits in the window, whatever became of them.
func (o *conflictOutcome) arrived() float64 {
	return float64(o.sum.Accepted+o.sum.Overloaded+o.sum.Failed) / o.measured.Seconds
}

func runConflicts(ctx context.Context, b *bench) error {
	warmUp, window := sized(b, 5*time.Second, 300*time.Millisecond), sized(b, 20*time.Second, 700*time.Millisecond)
	runs := []*conflictRun{
		{name: "80 % of slots busy", share: 0.8, rate: sized(b, b.rate, 300), file: "measured-target.json"},
		{name: "80 % of slots busy, at what this machine carries", share: 0.8, rate: sized(b, carriedRate, 300), file: "measured.json", endings: true},
		{name: "95 % of slots busy, likewise", share: 0.95, rate: sized(b, carriedRate, 300), file: "measured-busy.json", endings: true},
	}
	for _, run := range runs {
		w := &workload{Trace: b.trace, Nodes: b.nodes, Rate: float64(run.rate), Share: run.share, LostMS: slotLost, RampS: (warmUp / 2).Seconds(), Endings: run.endings, Limit: sized(b, 0, 10)}
		if err := w.load(); err != nil {
			return err
		}
		if err := run.measure(ctx, b, w, warmUp, window); err != nil {
			return fmt.Errorf("%s: %w", run.name, err)
		}
		m := &run.out.measured
		b.progress("%s: %s, refused %d of %d tried (%.3f %%), busy %.1f %%, %d overloaded, event delay %.0f / %.0f us, submit call %.0f / %.0f us",
			run.name, measure.Plural(int(m.Assigned), "job"), m.Refused, m.Tried, 100*m.Rate(), 100*m.BusyShare, m.Overloaded,
			valueAt(run.out.delay, 0.5), valueAt(run.out.delay, 0.99), valueAt(m.RoundTrip, 0.5), valueAt(m.RoundTrip, 0.99))
		if err := m.Validate(); err != nil {
			return fmt.Errorf("%s: %w", run.name, err)
		}
		data, err := measure.Encode(m)
		if err != nil {
			return err
		}
		if err := measure.WriteFile(filepath.Join(filepath.Dir(b.options.out), run.file), data); err != nil {
			return err
		}
	}
	reportConflicts(b, runs, warmUp, window)
	return nil
}

func reportConflicts(b *bench, runs []*conflictRun, warmUp, window time.Duration) {
	m := &runs[0].out.measured
	source := "made-up arrivals, durations and nodes"
	if b.trace != "" {
		source = fmt.Sprintf("Poisson arrivals, durations in proportion to the generated tokens of requests drawn at random from %s, nodes of %s", filepath.Base(b.trace), filepath.Base(b.nodes))
	}
	b.say("%d replicas in processes of their own (cell, cache, dispatcher), one Redis, %s with %s slots in one process; %s. %s after %s of warm-up, during the first half of which the arrivals grow from none.",
		workReplicas, measure.Plural(len(m.Slots), "node"), measure.Thousands(float64(slotSum(m.Slots))), source, window, warmUp)
	b.say("The nodes share connections and read their streams every %s, many with one XREAD, instead of each waiting for its own; heartbeats every %s, completions and registrations by the product's scripts. Jobs that wait come with the answer to a completion, as to every agent; none is taken ahead. Handlers only wait; each counts itself on its node while it runs.", agentPoll, agentHeartbeat)
	b.say("Refused: reservations that found the node full. Tried: these and the assignments. Busy: the mean of all slots taken in Redis, read every %s. Event delay: of %d more nodes that are made full and free every %s, from the script to each replica's cache.", busySample, probeNodes, probePace)
	b.say("Replicas and nodes run with GOMAXPROCS=%d: they share the machine's processors.", childProcs)
	if runs[0].raised {
		b.say("Redis has the priority of a process with nice %d and the nodes that of one with nice %d, as they would have processors of their own; the replicas share what they leave.", raisedNice, agentsNice)
	}
	t := result.Table{First: "Load", Columns: []result.Column{
		{Name: "arrivals due", Unit: result.PerSecond},
		{Name: "arrivals", Unit: result.PerSecond},
		{Name: "no answer", Unit: result.Number},
		{Name: "submitted late, p99", Unit: result.Milliseconds},
		{Name: "handler ended late, max", Unit: result.Milliseconds},
		{Name: "busy", Unit: result.Percent},
		{Name: "tried", Unit: result.Number},
		{Name: "refused", Unit: result.Number},
		{Name: "refused / tried", Unit: result.Percent},
		{Name: "overloaded", Unit: result.Number},
		{Name: "over-commits", Unit: result.Number},
		{Name: "event delay p50", Unit: result.Microseconds},
		{Name: "p99", Unit: result.Microseconds},
		{Name: "submit call p50", Unit: result.Microseconds},
		{Name: "p99", Unit: result.Microseconds},
		{Name: "jobs a call", Unit: result.Number},
	}}
	for _, run := range runs {
		o, m := &run.out, &run.out.measured
		t.Rows = append(t.Rows, result.Row{Name: run.name, Values: result.Values(
			float64(run.rate), rounded(o.arrived()), float64(o.sum.Failed), rounded(valueAt(o.late, 0.99)/1000), rounded(o.agents.LatestMS), rounded(100*m.BusyShare), float64(m.Tried), float64(m.Refused),
			rounded(100*m.Rate()), float64(m.Overloaded), float64(m.OverCommits),
			rounded(valueAt(o.delay, 0.5)), rounded(valueAt(o.delay, 0.99)), rounded(valueAt(m.RoundTrip, 0.5)), rounded(valueAt(m.RoundTrip, 0.99)), rounded(m.BatchMean))})
	}
	b.result.Tables = []result.Table{t}
	first := &runs[0].out
	b.target("arrivals with 80 % of slots busy", result.PerSecond, result.AtLeast, conflictsAsked, first.arrived())
	b.target("slots busy", result.Percent, result.AtLeast, 78, 100*m.BusyShare)
	b.target("reservation conflicts (refused / tried), 80 % of slots busy", result.Percent, result.AtMost, 1, 100*m.Rate())
	overCommits := int64(0)
	for _, run := range runs {
		overCommits += run.out.measured.OverCommits
	}
	b.target("over-commits, counted in the handlers of all runs", result.Number, result.Exactly, 0, float64(overCommits))
}

func slotSum(slots []int) int {
	sum := 0
	for _, n := range slots {
		sum += n
	}
	return sum
}

func valueAt(q sim.Quantiles, at float64) float64 {
	for _, p := range q {
		if p.At == at {
			return p.US
		}
	}
	return 0
}

func (run *conflictRun) measure(ctx context.Context, b *bench, w *workload, warmUp, window time.Duration) (err error) {
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if run.raised, err = s.raise(ctx); err != nil {
		return err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	fleet, err := run.startAgents(s.URL(), string(text))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.end()) }()
	probe, err := newProbe(ctx, s)
	if err != nil {
		return err
	}
	defer probe.close()
	var replicas []*childProcess
	defer func() { err = errors.Join(err, endAll(replicas)) }()
	for i := range workReplicas {
		r, err := startReady(submitterMode, s.URL(), strconv.Itoa(i), string(text))
		if err != nil {
			return err
		}
		replicas = append(replicas, r)
	}
	return run.drive(ctx, s, w, fleet, replicas, probe, warmUp, window)
}

func (run *conflictRun) startAgents(url, work string) (*childProcess, error) {
	if !run.raised {
		return startReady(agentsMode, url, work)
	}
	c, err := startRaised(agentsNice, agentsMode, url, work)
	if err != nil {
		return nil, err
	}
	return ready(agentsMode, c)
}

func (run *conflictRun) drive(ctx context.Context, s *server, w *workload, fleet *childProcess, replicas []*childProcess, probe *probe, warmUp, window time.Duration) error {
	begin := time.Now().Add(startDelay)
	if err := askAll(replicas, "start "+strconv.FormatInt(begin.UnixNano(), 10)); err != nil {
		return err
	}
	if err := measure.SleepUntil(ctx, begin.Add(warmUp)); err != nil {
		return err
	}
	if err := askAll(replicas, "mark"); err != nil {
		return err
	}
	opened := time.Now()
	end := opened.Add(window)
	made := make(chan probed, 1)
	go func() {
		changes, err := probe.run(ctx, end, probePace)
		made <- probed{changes, err}
	}()
	busy, err := busyShare(ctx, s, w, end)
	changes := <-made
	if err = errors.Join(err, changes.err); err != nil {
		return err
	}
	closed := time.Now()
	figures := make([]submitterFigures, len(replicas))
	for i, r := range replicas {
		if figures[i], err = query[submitterFigures](r, "figures"); err != nil {
			return err
		}
	}
	// Time for the last changes to come, while the load goes on.
	if err := measure.SleepUntil(ctx, closed.Add(ageLimit)); err != nil {
		return err
	}
	delay, met, err := met(replicas, changes.made)
	if err != nil {
		return err
	}
	o := &run.out
	unanswered := int64(0) // jobs of which their submitter does not know: they may run
	for _, r := range replicas {
		whole, err := query[submitterFigures](r, "stop")
		if err != nil {
			return err
		}
		o.accepted += whole.Accepted
		unanswered += whole.Failed
		o.late = worst(o.late, whole.Late)
	}
	if o.agents, err = query[agentFigures](fleet, "figures"); err != nil {
		return err
	}
	if o.agents.Handled < o.accepted || o.agents.Handled > o.accepted+unanswered || o.agents.NotCompleted > 0 {
		return fmt.Errorf("%d jobs accepted, %d without an answer, %d handled, %d of them not completed", o.accepted, unanswered, o.agents.Handled, o.agents.NotCompleted)
	}
	if o.agents.Silent > 0 {
		return fmt.Errorf("%d heartbeats failed: this machine cannot carry the load", o.agents.Silent)
	}
	run.sum(w, figures, delay, met, busy, closed.Sub(opened), warmUp)
	return nil
}

// blindness is how late choices met what their replica is told.
type blindness struct{ events, replies unseen }

// met says how late the changes were seen, and how late choices met them and the ends of jobs. Changes that were
// never seen count as the latest.
func met(replicas []*childProcess, made []change) (*hdrhistogram.Histogram, *blindness, error) {
	delay, all := measure.NewHistogram(), new(blindness)
	made = slices.DeleteFunc(made, func(ch change) bool { return ch.kind == changeHeartbeat })
	for _, r := range replicas {
		sights, err := query[[]sight](r, "sights")
		if err != nil {
			return nil, nil, err
		}
		choices, err := query[[]int64](r, "choices")
		if err != nil {
			return nil, nil, err
		}
		ended, err := query[[]ending](r, "endings")
		if err != nil {
			return nil, nil, err
		}
		seen, missed := sightings(made, sights)
		for _, ch := range missed {
			seen = append(seen, sighted{change: ch, atNS: ch.atNS + int64(ageLimit)})
		}
		for _, s := range seen {
			measure.Record(delay, time.Duration(s.atNS-s.change.atNS))
		}
		all.events.add(seen, choices)
		replies := make([]sighted, len(ended))
		for i, e := range ended {
			replies[i] = sighted{change: change{atNS: e.EndedNS}, atNS: e.CameNS}
		}
		all.replies.add(replies, choices)
	}
	return delay, all, nil
}

type probed struct {
	made []change
	err  error
}

// sum fills in what the simulation is told.
func (run *conflictRun) sum(w *workload, figures []submitterFigures, delay *hdrhistogram.Histogram, met *blindness, busy float64, window, warmUp time.Duration) {
	o := &run.out
	for _, f := range figures {
		o.sum.Calls, o.sum.Batches, o.sum.Refused, o.sum.Others = o.sum.Calls+f.Calls, o.sum.Batches+f.Batches, o.sum.Refused+f.Refused, o.sum.Others+f.Others
		o.sum.Accepted, o.sum.Overloaded, o.sum.Failed = o.sum.Accepted+f.Accepted, o.sum.Overloaded+f.Overloaded, o.sum.Failed+f.Failed
		o.sum.RoundTrip = append(o.sum.RoundTrip, f.RoundTrip...)
	}
	o.delay = quantilesOf(delay)
	arrivals, durations := w.kinds()
	m := &o.measured
	*m = sim.Measured{
		About:    fmt.Sprintf("%d replicas in processes of their own, %s", workReplicas, run.name),
		Replicas: workReplicas, Seconds: window.Seconds(), WarmUpSeconds: warmUp.Seconds(),
		Arrivals: arrivals, ArrivalsPerSecond: w.Rate,
		Durations:        sim.MeasuredDurations{Kind: durations, PerTokenNS: w.durations.PerToken, MeanUS: float64(w.mean().Microseconds())},
		Samples:          selection.DefaultSamples,
		HeartbeatSeconds: agentHeartbeat.Seconds(),
		EventDelay:       met.events.delays(), ReplyDelay: met.replies.delays(), RoundTrip: meanQuantiles(figures),
		BatchMean: rounded(float64(o.sum.Calls) / float64(max(o.sum.Batches, 1))),
		Calls:     o.sum.Calls, Tried: o.sum.Refused + o.sum.Accepted, Refused: o.sum.Refused, Assigned: o.sum.Accepted,
		Overloaded: o.sum.Overloaded, OverCommits: o.agents.OverCommits, BusyShare: busy,
	}
	for _, f := range figures {
		m.ForwardShare += f.ForwardShare / float64(len(figures))
	}
	for i := range w.fleet {
		m.Slots = append(m.Slots, w.fleet[i].Slots())
	}
}

// meanQuantiles is the mean of the replicas' quantiles, point by point.
func meanQuantiles(figures []submitterFigures) sim.Quantiles {
	var out sim.Quantiles
	n := 0.0
	for _, f := range figures {
		if len(f.RoundTrip) == 0 {
			continue
		}
		n++
		if out == nil {
			out = append(out, f.RoundTrip...)
			continue
		}
		for i := range out {
			out[i].US += f.RoundTrip[i].US
		}
	}
	for i := range out {
		out[i].US /= n
	}
	return out
}

// worst takes the larger value of each point.
func worst(a, b sim.Quantiles) sim.Quantiles {
	if a == nil {
		return b
	}
	for i := range b {
		a[i].US = max(a[i].US, b[i].US)
	}
	return a
}

func askAll(replicas []*childProcess, line string) error {
	for _, r := range replicas {
		answer, err := r.ask(line)
		if err != nil {
			return err
		}
		if answer != `"ok"` {
			return fmt.Errorf("%s: %q was answered %q", r.Name, line, answer)
		}
	}
	return nil
}

// busyShare is the mean share of all slots that are taken in Redis, until the end.
func busyShare(ctx context.Context, s *server, w *workload, end time.Time) (float64, error) {
	l := cell.Layout{Prefix: cell.DefaultPrefix}
	sum, samples := 0, 0
	for time.Now().Before(end) {
		commands := make(rueidis.Commands, len(w.fleet))
		for i := range w.fleet {
			commands[i] = s.client.B().Hget().Key(l.Slots(w.fleet[i].ID)).Field("sum").Build().Pin()
		}
		call, cancel := context.WithTimeout(ctx, measure.CallTimeout)
		results := s.client.DoMulti(call, commands...)
		cancel()
		for _, r := range results {
			n, err := r.AsInt64()
			if err != nil && !rueidis.IsRedisNil(err) {
				return 0, fmt.Errorf("read slots: %w", err)
			}
			sum += int(n)
		}
		samples++
		if err := measure.SleepUntil(ctx, time.Now().Add(busySample)); err != nil {
			return 0, err
		}
	}
	return float64(sum) / float64(samples) / float64(w.slots()), nil
}

// probe makes changes whose moments are known while the load is on.
type probe struct {
	*changer
	client rueidis.Client
	cell   *cell.Cell
}

func newProbe(ctx context.Context, s *server) (*probe, error) {
	client, err := s.commands("probe")
	if err != nil {
		return nil, err
	}
	stamped := &stampedClient{Client: client}
	c, err := newCell(ctx, stamped)
	if err != nil {
		client.Close()
		return nil, err
	}
	p := &probe{changer: newChanger(c, stamped, probePrefix, probeNodes), client: client, cell: c}
	if err := p.register(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probe) close() {
	stopCell(p.cell)
	p.client.Close()
}
