package result

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
)

// Section is the part of the report that the results file gives. It depends on nothing but data.
func Section(data []byte) ([]byte, error) {
	r := new(Results)
	if err := measure.Decode(File, data, r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("## Beside its peers\n\n")
	r.targets(&b)
	r.runs(&b)
	for i := range r.Modes {
		r.Modes[i].write(&b, i == 0)
	}
	if r.Limit != nil {
		r.Limit.write(&b)
	}
	if r.Scale != nil {
		r.Scale.write(&b)
	}
	if r.Replay != nil {
		r.Replay.write(&b)
	}
	return b.Bytes(), nil
}

func (r *Results) targets(b *bytes.Buffer) {
	b.WriteString("| What | Target | Measured | Met |\n| --- | --- | --- | --- |\n")
	for _, t := range r.Targets() {
		measured, met := "not measured", "not measured"
		if t.Known {
			measured, met = t.Measured, "yes"
			if !t.Met {
				met = "**no**"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.What, t.Limit, measured, met)
	}
}

func (r *Results) runs(b *bytes.Buffer) {
	b.WriteString("\n| Part | Command | Commit | Date | Machine | Go | Servers | Took |\n| --- | --- | --- | --- | --- | --- | --- | ---: |\n")
	line := func(name string, run *Run) {
		if run.Short {
			name += " (short run)"
		}
		servers := []string{run.Redis}
		for _, s := range []string{run.Postgres, run.Node} {
			if s != "" {
				servers = append(servers, s)
			}
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s, %d cores, %s | %s | %s | %.0f s |\n", name, cell(run.Command), run.Commit, run.Date,
			run.CPU, run.Cores, run.OS, run.Go, strings.Join(servers, ", "), run.Seconds)
	}
	for i := range r.Modes {
		line("peers, "+r.Modes[i].words(), &r.Modes[i].Run)
	}
	if r.Limit != nil {
		line("limit", &r.Limit.Run)
	}
	if r.Scale != nil {
		line("scale", &r.Scale.Run)
	}
	if r.Replay != nil {
		line("replay", &r.Replay.Run)
	}
}

func (m *Mode) words() string {
	text := "append-only file " + m.AOF
	if m.AwayUS > 0 {
		text += ", " + measure.Micros(m.AwayUS) + " away from Redis"
	}
	return text
}

func (m *Mode) write(b *bytes.Buffer, plots bool) {
	words := m.words()
	fmt.Fprintf(b, "\n### Peers, %s\n\n", words)
	fmt.Fprintf(b, "- Each with the best setting of a sweep; medians of interleaved rounds, each freshly started; windows of %s after %s. Settings and why: [README](README.md).\n",
		measure.Millis(m.MeasureMS), measure.Millis(m.WarmUpMS))
	fmt.Fprintf(b, "- A job has a payload of %d bytes; its record and its result are kept, and the submitter reads the result. Its handler does nothing.\n", load.PayloadBytes)
	b.WriteString("- Levels are shares of each one's own saturation, in an open loop, at 10 % by a call for each job; times begin when a job was due. Times are p50 / p99 / p99.9.\n")
	for _, x := range m.Missing {
		fmt.Fprintf(b, "- Not measured: %s: %s.\n", cell(x.Name), cell(strings.TrimSuffix(x.Why, ".")))
	}
	if plots {
		b.WriteString("\n![Time to result at half of the saturation](results/peers-latency.svg)\n\n![Throughput by jobs in flight](results/peers-throughput.svg)\n")
	}
	b.WriteString("\n| Peer | Jobs/s | least to most | Rounds | Microseconds a job by process | Redis busy |\n| --- | ---: | ---: | ---: | --- | ---: |\n")
	for i := range m.Entries {
		e := &m.Entries[i]
		low, high := e.span()
		fmt.Fprintf(b, "| %s | %s | %s to %s | %d | %s | %s |\n", strings.TrimSpace(e.Name+" "+e.Version), measure.Thousands(e.Throughput()), measure.Thousands(low), measure.Thousands(high),
			len(e.Rounds), e.cpu(), e.busy())
	}
	b.WriteString("\n| Peer | Level | Jobs/s due | Submit to assign | Submit to start | Submit to result | Bare EVALSHA beside | Submitted late | Failed |\n| --- | ---: | ---: | --- | --- | --- | --- | --- | ---: |\n")
	for i := range m.Entries {
		m.Entries[i].levelRows(b)
	}
	b.WriteString("\n| Peer | Worker | Processes | Load | In flight | Jobs a call | Jobs/s | p50 to result | |\n| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- |\n")
	for i := range m.Entries {
		e := &m.Entries[i]
		for _, p := range e.Sweep {
			note := cell(p.Error)
			if p.Setting == e.Best {
				note = "taken"
			}
			fmt.Fprintf(b, "| %s | `%s` | %d | `%s` | %d | %d | %s | %s | %s |\n", e.Name, p.Worker, p.Processes, p.Load, p.InFlight, p.Batch,
				measure.Thousands(p.JobsPerSecond), measure.Micros(p.ResultP50), note)
		}
	}
}

func (e *Entry) span() (low, high float64) {
	for i, r := range e.Rounds {
		v := r.Saturation.JobsPerSecond
		if i == 0 {
			low, high = v, v
		}
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

func (e *Entry) cpu() string {
	var parts []string
	for _, name := range []string{"load", "replicas", "workers", "redis"} {
		v := e.median(func(r *Round) (float64, bool) {
			for _, c := range r.CPU {
				if c.Process == name {
					return c.UsPerJob, true
				}
			}
			return 0, false
		})
		if v > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f", name, v))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func (e *Entry) busy() string {
	v := e.median(func(r *Round) (float64, bool) { return r.RedisBusy, r.RedisBusy > 0 })
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", v*100)
}

func (e *Entry) levelRows(b *bytes.Buffer) {
	for k := range e.levels() {
		share := e.Rounds[0].Levels[k].Share
		words := func(of func(*Level) *load.Times) string {
			at := func(q func(*load.Times) int64) (float64, bool) {
				return e.At(share, func(l *Level) (float64, bool) {
					t := of(l)
					if t == nil || t.Count == 0 {
						return 0, false
					}
					return float64(q(t)), true
				})
			}
			p50, ok := at(func(t *load.Times) int64 { return t.P50 })
			if !ok {
				return "-"
			}
			p99, _ := at(func(t *load.Times) int64 { return t.P99 })
			p999, _ := at(func(t *load.Times) int64 { return t.P999 })
			return measure.Micros(int64(p50)) + " / " + measure.Micros(int64(p99)) + " / " + measure.Micros(int64(p999))
		}
		rate, _ := e.At(share, func(l *Level) (float64, bool) { return l.Rate, true })
		var failed int64
		for i := range e.Rounds {
			failed += e.Rounds[i].Levels[k].Failures()
		}
		fmt.Fprintf(b, "| %s | %.0f %% | %s | %s | %s | %s | %s | %s | %d |\n", e.Name, share*100, measure.Thousands(rate),
			words(func(l *Level) *load.Times { return l.Assign }), words(func(l *Level) *load.Times { return &l.Start }),
			words(func(l *Level) *load.Times { return &l.Result }), words(func(l *Level) *load.Times { return l.Bare }),
			words(func(l *Level) *load.Times { return l.Late }), failed)
	}
}

func (l *Limit) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### Against the limit\n\n- In process, %d nodes, append-only file off, %s jobs/s at saturation. Redis' main thread is busy for %.0f %% of the time, %.1f us a job, of which %.1f us in scripts.\n",
		l.Nodes, measure.Thousands(l.JobsPerSecond), l.RedisBusy*100, l.Redis.CPUPerJob, l.Redis.ScriptPerJob)
	b.WriteString("- By script: number and time of calls come from a sample in which Redis logs every call, which makes each a little longer; its clock counts in whole microseconds. Commands that scripts call are listed too; their time is part of the scripts'.\n")
	if len(l.Profiles) > 0 {
		fmt.Fprintf(b, "- CPU profiles of replica and agents at saturation are left in `.dev/bench`: %s.\n", strings.Join(l.Profiles, ", "))
	}
	b.WriteString("\n| Call | Calls a job | Redis time a call | Redis time a job | Calls in the sample |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, c := range l.Calls {
		fmt.Fprintf(b, "| %s | %.3f | %.1f us | %.2f us | %d |\n", c.Name, c.CallsPerJob, c.UsPerCall, c.UsPerJob, c.SampleCalls)
	}
	b.WriteString("\n| Redis' own counters | Calls a job | Redis time a job |\n| --- | ---: | ---: |\n")
	for _, c := range l.Redis.Commands {
		fmt.Fprintf(b, "| %s | %.2f | %.2f us |\n", c.Command, c.CallsPerJob, c.TimePerJob)
	}
	b.WriteString("\n| Ceiling of one script alone | By | Jobs a call | Calls/s | Jobs/s |\n| --- | --- | ---: | ---: | ---: |\n")
	for _, c := range l.Ceilings {
		if c.Error != "" {
			fmt.Fprintf(b, "| %s | %s | %d | not measured: %s | |\n", c.Name, c.How, c.Jobs, cell(c.Error))
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %d | %s | %s |\n", c.Name, c.How, c.Jobs, measure.Thousands(c.CallsPerSecond), measure.Thousands(c.CallsPerSecond*float64(c.Jobs)))
	}
	b.WriteString("\n| Round trips a job | alone | at saturation |\n| --- | ---: | ---: |\n")
	for _, p := range l.Phases {
		fmt.Fprintf(b, "| %s | %.2f | %.3f |\n", p.Name, p.Alone, p.Saturated)
	}
}

func (s *Scale) write(b *bytes.Buffer) {
	b.WriteString("\n### As it grows\n\n")
	b.WriteString("- Nodes: in process, nodes of one connection each in one process, no heartbeats, 4,096 slots altogether or one a node. Replicas: processes, WebSocket, 64 jobs a frame, 16 nodes. Cells: on a cluster of three masters, in process, 48 nodes.\n")
	b.WriteString("- Alone: one job at a time, so every call is for one job. Saturated: 512 jobs in flight. Redis time is that inside EVALSHA and XREAD, of all servers; medians of three windows.\n")
	b.WriteString("\n![Redis time a job as nodes grow](results/peers-nodes.svg)\n")
	b.WriteString("\n| | | Load | Away | Redis time a job | CPU of Redis a job | Jobs/s | p50 to assign | Result p50 / p99 |\n| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | --- |\n")
	for _, p := range s.Points {
		far := "-"
		if p.AwayUS > 0 {
			far = measure.Micros(p.AwayUS)
		}
		if p.Error != "" {
			fmt.Fprintf(b, "| %s | %d | %s | %s | not measured: %s | | | | |\n", p.What, p.Value, p.Load, far, cell(p.Error))
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s | %.2f us | %.2f us | %s | %s | %s / %s |\n", p.What, p.Value, p.Load, far, p.RedisUs, p.CPUUs,
			measure.Thousands(p.JobsPerSecond), measure.Micros(p.AssignP50), measure.Micros(p.ResultP50), measure.Micros(p.ResultP99))
	}
}

func (r *Replay) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### A trace on a fleet\n\n- The first %d requests of `%s` on %s with %d slots, in process. A job takes time in proportion to its generated tokens, so that a share of the slots is busy; half of the jobs ask for a GPU model. What the trace begins with is no average: the share is over all of it.\n",
		r.Jobs, r.Trace, measure.Plural(r.Nodes, "node"), r.Slots)
	b.WriteString("- The ideal scheduler knows every slot at once, costs nothing, and serves those that ask for the same in the order in which they came. Delays are p50 / p99 / p99.9, from when a job was due until its handler began; over ideal is the difference, job by job.\n")
	b.WriteString("\n| Busy | Jobs/s due | Faster than recorded | Delay | Ideal | Over ideal | Submitted late | Mean delay and ideal | Failed |\n| ---: | ---: | ---: | --- | --- | --- | --- | --- | ---: |\n")
	for _, run := range r.Runs {
		var failed int64
		for _, n := range run.Failed {
			failed += n
		}
		fmt.Fprintf(b, "| %.0f %% | %s | %.1f times | %s | %s | %s | %s | %s and %s | %d |\n", run.Busy*100, measure.Thousands(run.Rate), run.Faster, run.Delay.Words(), run.Ideal.Words(),
			run.Over.Words(), run.Late.Words(), measure.Micros(int64(run.Delay.Mean)), measure.Micros(int64(run.Ideal.Mean)), failed)
	}
}

// cell keeps free text inside its cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "/"), "\n", " ")
}
