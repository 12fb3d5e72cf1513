package demand

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		load load
		want float64
	}{
		{"nothing", load{target: 30}, 0},
		{"a steady state", load{used: 20, arrivals: 2, run: 10, target: 30}, 20},
		{"a backlog of short jobs", load{used: 4, wanted: 316, run: 1, target: 15}, 20},
		{"a backlog of very long jobs", load{used: 5, wanted: 100, run: 1e9, target: 30}, 105},
		{"jobs of unknown length", load{used: 5, wanted: 100, arrivals: 0.5, target: 30}, 120},
		{"few arrivals, long jobs still run", load{used: 50, arrivals: 0, run: 60, target: 60}, 50},
	} {
		if got := test.load.slots(); math.Abs(got-test.want) > 1e-3 {
			t.Errorf("%s: %v slots; want %v", test.name, got, test.want)
		}
	}
	if got := (load{used: 8, arrivals: 1, run: 8, target: 30}).nodes(4); got != 2 {
		t.Errorf("%d nodes of four slots; want 2", got)
	}
	if got := (load{wanted: 1, run: 0.001, target: 30}).nodes(4); got != 1 {
		t.Errorf("%d nodes for one job; want 1", got)
	}
	if got := (load{wanted: 1000, target: 30}).nodes(4); got != 1 {
		t.Errorf("%d nodes for many jobs of unknown length, where none is; want 1", got)
	}
	if got := (load{wanted: 1000, target: 30, there: 3}).nodes(4); got != 6 {
		t.Errorf("%d nodes for many jobs of unknown length, beside 3; want 6", got)
	}
}

// TestProposal: more nodes at once, fewer after five minutes of a smaller need.
func TestProposal(t *testing.T) {
	t.Parallel()
	begin := time.UnixMilli(0)
	p := newProposal(begin, 3)
	for _, step := range []struct {
		after time.Duration
		need  int
		want  int
	}{
		{0, 1, 3},
		{time.Minute, 5, 5},
		{2 * time.Minute, 2, 5},
		{4 * time.Minute, 4, 5},
		{6 * time.Minute, 1, 5},
		{6*time.Minute + time.Second, 1, 4},
		{9 * time.Minute, 1, 4},
		{10 * time.Minute, 1, 1},
		{11 * time.Minute, 0, 1},
		{20 * time.Minute, 0, 0},
	} {
		if got := p.add(begin.Add(step.after), step.need); got != step.want {
			t.Errorf("after %s, with a need of %d: %d nodes; want %d", step.after, step.need, got, step.want)
		}
	}
	if n := len(p.needs); n > 2 {
		t.Errorf("%d needs are kept; want those that can still count", n)
	}
}

// simulated is a pool whose size follows the proposals. Its clock is the test's own.
type simulated struct {
	arrivals func(at float64) float64 // jobs per second
	run      func(r *rand.Rand) float64
	target   float64
	each     int     // slots of a node
	starting float64 // time until a new node takes jobs
}

type waited struct{ at, wait float64 }

// play returns how long each job waited, and how often the proposal changed.
func (s simulated) play(r *rand.Rand, until float64) (all []waited, changes, most int) {
	var (
		queue, ends, ready []float64 // when jobs came, when running ones end, when ordered nodes are there
		nodes, proposed    int
		known              rates
		begun              starts
		p                  = newProposal(time.Unix(0, 0), 0)
		came               int
		tick               = 5.0
		next               = r.ExpFloat64() / s.arrivals(0)
		now                float64
	)
	for now < until {
		now = min(next, tick)
		if len(ends) > 0 {
			now = min(now, slices.Min(ends))
		}
		ends = slices.DeleteFunc(ends, func(at float64) bool { return at <= now })
		if now == next {
			queue, came = append(queue, now), came+1
			next = now + r.ExpFloat64()/s.arrivals(now)
		}
		if now == tick {
			tick += 5
			known.add(Told{Came: float64(came) / 5, Slots: float64(came) / 5}, 5*time.Second)
			came = 0
			begun.add(float64(len(ends)), float64(len(queue)), known.arrivals, 5*time.Second)
			l := load{float64(len(ends)), float64(len(queue)), known.arrivals, begun.run(&known), s.target, nodes}
			want := p.add(time.Unix(0, int64(now*1e9)), l.nodes(float64(s.each)))
			if want != proposed {
				proposed, changes = want, changes+1
			}
			for len(ready)+nodes < want {
				ready = append(ready, now+s.starting)
			}
			nodes = min(nodes, want) // a node that goes ends its jobs, and takes no more
			ready = ready[:min(len(ready), want-nodes)]
		}
		ready = slices.DeleteFunc(ready, func(at float64) bool {
			if at <= now {
				nodes++
			}
			return at <= now
		})
		most = max(most, nodes)
		for len(queue) > 0 && len(ends) < nodes*s.each {
			all = append(all, waited{queue[0], now - queue[0]})
			queue, ends = queue[1:], append(ends, now+s.run(r))
		}
	}
	return all, changes, most
}

// TestTargetIsKept: in a simulated pool nearly all jobs begin within the target once the nodes have
// had the time to start, and the size neither swings nor stays high.
func TestTargetIsKept(t *testing.T) {
	t.Parallel()
	exponential := func(mean float64) func(*rand.Rand) float64 {
		return func(r *rand.Rand) float64 { return mean * r.ExpFloat64() }
	}
	fixed := func(d float64) func(*rand.Rand) float64 { return func(*rand.Rand) float64 { return d } }
	const hour = 3600.0
	steps := func(low, high float64) func(float64) float64 {
		return func(at float64) float64 {
			if at >= hour && at < 2*hour {
				return high
			}
			return low
		}
	}
	for name, s := range map[string]simulated{
		"short jobs":  {steps(5, 40), exponential(0.5), 10, 4, 60},
		"usual jobs":  {steps(0.5, 4), exponential(10), 30, 4, 60},
		"fixed jobs":  {steps(0.5, 4), fixed(10), 30, 4, 60},
		"long jobs":   {steps(0.02, 0.1), exponential(300), 60, 2, 60},
		"large nodes": {steps(1, 8), exponential(10), 30, 32, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, changes, most := s.play(rand.New(rand.NewPCG(1, 2)), 3*hour)
			late, counted := 0, 0
			for _, w := range all {
				if since := math.Mod(w.at, hour); since < 600 { // nodes start
					continue
				}
				if counted++; w.wait > s.target {
					late++
				}
			}
			share := float64(late) / float64(counted)
			t.Logf("%d jobs, %.2f %% late, %d changes, at most %d nodes", counted, 100*share, changes, most)
			if share > 0.05 {
				t.Errorf("%.1f %% of the jobs waited for longer than the target; want at most 5 %%", 100*share)
			}
		})
	}
}
