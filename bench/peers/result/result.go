// Package result is what bench/peers/run writes and what bench/report reads: its JSON, its part of the report,
// and its plots.
package result

import (
	"cmp"
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
)

// File is the name of the results file.
const File = "peers.json"

// The names of entries that targets speak of.
const (
	InProcess = "freeslot, in process"
	WebSocket = "freeslot, WebSocket, single frames"
	Batches   = "freeslot, WebSocket, batch frames"
	Asynq     = "asynq"
)

// Results is the JSON file: the last run of each part. A part that is nil was not measured.
type Results struct {
	// Modes are the comparison with peers, each under other conditions.
	Modes  []Mode  `json:"modes,omitempty"`
	Limit  *Limit  `json:"limit,omitempty"`
	Scale  *Scale  `json:"scale,omitempty"`
	Replay *Replay `json:"replay,omitempty"`
}

// Run says what was run, on what and with what.
type Run struct {
	measure.Machine
	Redis    string `json:"redis"`
	Postgres string `json:"postgres,omitempty"`
	Node     string `json:"node,omitempty"`
	// Short is true for a run that is too short for its figures to be quoted.
	Short   bool    `json:"short,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Mode is all peers under the same conditions.
type Mode struct {
	// AOF is off, everysec or always.
	AOF string `json:"aof"`
	// AwayUS is by how much a round trip to Redis was lengthened.
	AwayUS int64 `json:"away_us,omitempty"`
	Run
	WarmUpMS  int64     `json:"warm_up_ms"`
	MeasureMS int64     `json:"measure_ms"`
	Entries   []Entry   `json:"entries"`
	Missing   []Missing `json:"missing,omitempty"`
}

// Missing is a peer that could not be measured.
type Missing struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Entry is one peer, or one way to use this one.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Best is the setting of the sweep with which the rounds were measured.
	Best   Setting `json:"best"`
	Sweep  []Point `json:"sweep"`
	Rounds []Round `json:"rounds"`
}

// Setting is how a peer is run: the flags of its roles, how many processes run jobs, and how jobs are submitted.
type Setting struct {
	Worker    string `json:"worker"`
	Processes int    `json:"worker_processes"`
	Load      string `json:"load,omitempty"`
	InFlight  int    `json:"in_flight"`
	Batch     int    `json:"batch"`
}

// Point is one setting of a sweep. JobsPerSecond is 0 where Error says why.
type Point struct {
	Setting
	JobsPerSecond float64 `json:"jobs_per_second"`
	ResultP50     int64   `json:"result_p50_us"`
	Error         string  `json:"error,omitempty"`
}

// Round is one start of a peer, measured at saturation and at shares of it.
type Round struct {
	Saturation load.Figures `json:"saturation"`
	// CPU is microseconds a job by process, at saturation.
	CPU []CPU `json:"cpu,omitempty"`
	// RedisBusy is the share of the time that Redis' main thread was busy, at saturation.
	RedisBusy float64 `json:"redis_busy,omitempty"`
	Levels    []Level `json:"levels,omitempty"`
	// One is one job at a time, Bare the round trips of an EVALSHA one after the other on the same system.
	One  *load.Figures `json:"one,omitempty"`
	Bare *load.Times   `json:"bare,omitempty"`
}

// CPU is the processor time of one of the processes.
type CPU struct {
	Process  string  `json:"process"`
	UsPerJob float64 `json:"us_per_job"`
}

// Level is an open loop at a share of the entry's own saturation.
type Level struct {
	Share float64 `json:"share"`
	Rate  float64 `json:"rate_per_second"`
	load.Figures
}

// Limit is the comparison with what Redis could do at most.
type Limit struct {
	Run
	Nodes int `json:"nodes"`
	// JobsPerSecond is at saturation, with Redis' main thread busy for a share of the time.
	JobsPerSecond float64           `json:"jobs_per_second"`
	RedisBusy     float64           `json:"redis_busy"`
	Redis         measure.RedisCost `json:"redis_cost"`
	// Calls are what Redis was asked for, by script and command, with its time and the number a job.
	Calls []Call `json:"calls"`
	// Ceilings are rates of one script alone.
	Ceilings []Ceiling `json:"ceilings"`
	// Profiles are the files with CPU profiles, below the artefacts' folder.
	Profiles []string `json:"profiles,omitempty"`
	// Phases are round trips a job, as the processes wait for them.
	Phases []Phase `json:"phases"`
}

// Call is a script or a command. Time is what Redis' slow log says of the calls in a sample of SampleCalls.
type Call struct {
	Name        string  `json:"name"`
	CallsPerJob float64 `json:"calls_per_job"`
	UsPerCall   float64 `json:"us_per_call"`
	UsPerJob    float64 `json:"us_per_job"`
	SampleCalls int     `json:"sample_calls"`
}

// Ceiling is how fast Redis alone takes one script.
type Ceiling struct {
	Name string `json:"name"`
	// How says by which tool.
	How string `json:"how"`
	// CallsPerSecond, each of Jobs jobs.
	CallsPerSecond float64 `json:"calls_per_second"`
	Jobs           int     `json:"jobs_per_call"`
	Error          string  `json:"error,omitempty"`
}

// Phase is a part of a job's way.
type Phase struct {
	Name string `json:"name"`
	// Alone is round trips of a job that is alone, Saturated calls a job at saturation.
	Alone     float64 `json:"alone"`
	Saturated float64 `json:"saturated"`
}

// Scale is how cost grows.
type Scale struct {
	Run
	Points []ScalePoint `json:"points"`
}

// ScalePoint is one shape of a system.
type ScalePoint struct {
	// What is replicas, nodes or cells: what Value counts.
	What  string `json:"what"`
	Value int    `json:"value"`
	// Load is alone (one job at a time: batches of one) or saturated.
	Load   string `json:"load"`
	AwayUS int64  `json:"away_us,omitempty"`
	// RedisUs is what all Redis processes spent on a job in commands; CPUUs is the time of their main threads.
	RedisUs       float64 `json:"redis_us_per_job"`
	CPUUs         float64 `json:"redis_cpu_us_per_job"`
	JobsPerSecond float64 `json:"jobs_per_second"`
	AssignP50     int64   `json:"assign_p50_us"`
	ResultP50     int64   `json:"result_p50_us"`
	ResultP99     int64   `json:"result_p99_us"`
	Error         string  `json:"error,omitempty"`
}

// The loads of a ScalePoint.
const (
	Alone     = "alone"
	Saturated = "saturated"
)

// Replay is a trace on a fleet.
type Replay struct {
	Run
	Trace string `json:"trace"`
	Nodes int    `json:"nodes"`
	Slots int    `json:"slots"`
	Jobs  int    `json:"jobs"`
	// Runs are at several loads.
	Runs []ReplayRun `json:"runs"`
}

// ReplayRun is one load. Delays are from when a job was due until its handler began, in microseconds.
type ReplayRun struct {
	Busy float64 `json:"busy_share"`
	Rate float64 `json:"rate_per_second"`
	// Faster is how many times faster than it was recorded the trace is replayed.
	Faster float64         `json:"faster"`
	Delay  measure.Latency `json:"delay"`
	// Ideal is that of a scheduler that knows everything and costs nothing, Over what is beyond it, job by job.
	Ideal  measure.Latency  `json:"ideal"`
	Over   measure.Latency  `json:"over_ideal"`
	Late   measure.Latency  `json:"submitted_late"`
	Failed map[string]int64 `json:"failed,omitempty"`
}

// Entry is the one of that name, or nil.
func (m *Mode) Entry(name string) *Entry {
	if m == nil {
		return nil
	}
	i := slices.IndexFunc(m.Entries, func(e Entry) bool { return e.Name == name })
	if i < 0 || len(m.Entries[i].Rounds) == 0 {
		return nil
	}
	return &m.Entries[i]
}

// Mode is the one with these conditions, or nil.
func (r *Results) Mode(aof string, awayUS int64) *Mode {
	i := slices.IndexFunc(r.Modes, func(m Mode) bool { return m.AOF == aof && m.AwayUS == awayUS })
	if i < 0 {
		return nil
	}
	return &r.Modes[i]
}

// PutMode replaces the mode with the same conditions, or adds it.
func (r *Results) PutMode(m Mode) {
	if have := r.Mode(m.AOF, m.AwayUS); have != nil {
		*have = m
		return
	}
	r.Modes = append(r.Modes, m)
	slices.SortStableFunc(r.Modes, func(a, b Mode) int {
		return cmp.Or(cmp.Compare(a.AwayUS, b.AwayUS), cmp.Compare(len(b.Entries), len(a.Entries)))
	})
}

// Throughput is the median of the rounds.
func (e *Entry) Throughput() float64 {
	return e.median(func(r *Round) (float64, bool) { return r.Saturation.JobsPerSecond, true })
}

// At is the median over the rounds of a figure of one level; false where none has it.
func (e *Entry) At(share float64, figure func(*Level) (float64, bool)) (float64, bool) {
	found := false
	v := e.median(func(r *Round) (float64, bool) {
		for i := range r.Levels {
			if r.Levels[i].Share == share {
				v, ok := figure(&r.Levels[i])
				found = found || ok
				return v, ok
			}
		}
		return 0, false
	})
	return v, found
}

func (e *Entry) median(figure func(*Round) (float64, bool)) float64 {
	var all []float64
	for i := range e.Rounds {
		if v, ok := figure(&e.Rounds[i]); ok {
			all = append(all, v)
		}
	}
	return Median(all)
}

// Median is the middle of values, or the mean of the two in the middle; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Thin drops the curves of all rounds but the one in the middle, by their time to result: a file need not say
// them ten times.
func (e *Entry) Thin() {
	n := len(e.Rounds)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for level := range e.levels() {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(e.Rounds[a].Levels[level].Result.P50, e.Rounds[b].Levels[level].Result.P50)
		})
		for at, i := range order {
			if at != (n-1)/2 {
				dropCurves(&e.Rounds[i].Levels[level].Figures)
			}
		}
	}
	for i := range e.Rounds {
		dropCurves(&e.Rounds[i].Saturation)
		if e.Rounds[i].One != nil {
			dropCurves(e.Rounds[i].One)
		}
		if e.Rounds[i].Bare != nil {
			e.Rounds[i].Bare.Curve = nil
		}
	}
}

// levels is how many levels every round has.
func (e *Entry) levels() int {
	if len(e.Rounds) == 0 {
		return 0
	}
	n := len(e.Rounds[0].Levels)
	for i := range e.Rounds {
		n = min(n, len(e.Rounds[i].Levels))
	}
	return n
}

func dropCurves(f *load.Figures) {
	f.Start.Curve, f.Result.Curve = nil, nil
	for _, t := range []*load.Times{f.Assign, f.Bare, f.Late} {
		if t != nil {
			t.Curve = nil
		}
	}
}

// Failures is how many jobs of the modes that ran last did not succeed: those whose run is of this moment or later.
func (r *Results) Failures(since string) (n int64) {
	for i := range r.Modes {
		if r.Modes[i].Run.Date < since {
			continue
		}
		for _, e := range r.Modes[i].Entries {
			for k := range e.Rounds {
				n += e.Rounds[k].Saturation.Failures()
				for l := range e.Rounds[k].Levels {
					n += e.Rounds[k].Levels[l].Failures()
				}
			}
		}
	}
	return n
}
