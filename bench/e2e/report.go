package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// errStale is returned by check when the report is not what the results give.
var errStale = errors.New("report is out of date")

// report writes the results for readers. It depends on nothing but r.
func report(r *results) []byte {
	var b bytes.Buffer
	b.WriteString("<!-- Written by `go run ./bench/e2e -report` from results/e2e.json. Do not edit. -->\n# Measured end to end\n\n")
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| Command | `%s` |\n| Commit | %s |\n| Date | %s |\n| Machine | %s, %d cores, %s |\n| Go | %s |\n",
		r.Command, r.Commit, r.Date, r.CPU, r.Cores, r.OS, r.Go)
	fmt.Fprintf(&b, "| System | %s, %s of %d slots in one process, 1 Redis, %s; all on this machine |\n",
		plural(r.Replicas, "replica"), plural(r.Nodes, "node"), r.Slots, plural(r.Sessions, "WebSocket session"))
	fmt.Fprintf(&b, "| Jobs | payload of %d bytes; the handler does nothing |\n", r.Payload)
	fmt.Fprintf(&b, "| Window | %s for each scenario, after %s of warm-up |\n", millis(r.MeasureMS), millis(r.WarmUpMS))
	for i := range r.Systems {
		r.Systems[i].write(&b)
	}
	b.WriteString(notes)
	return b.Bytes()
}

const notes = `
## How to read this

- Times are p50 / p99 / p99.9 as the client sees them, over loopback. In a closed loop they begin with the
  submit; in an open loop when the job was due, so a stall counts for every job that falls into it.
- The yardstick is the round trip of a bare EVALSHA (` + "`return 1`" + `) from the client's process, 200 times a second
  under the load itself. The factor is time to assign over it, at p50. A rare call takes longer than one of many
  back to back: processes that sleep have to be woken.
- "Submitted late" is by how much this tool was late for the rate of an open loop: part of both times.
- Redis per job is the CPU of its main thread divided by the jobs; "in scripts" is the part inside EVALSHA.
- Clients, replicas, nodes and Redis share the cores: where these are all busy, latency is mostly the wait for one.
- Refused submits were answered with a temporary error (` + "`overloaded`" + `); single ones were tried again.
`

func (s *systemPart) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s, append-only file: %s\n\n", s.Redis, s.AOF)
	fmt.Fprintf(b, "Bare EVALSHA, back to back on the idle system: %s.\n\n", s.Idle.words())
	b.WriteString("| Load | Jobs/s | Time to assign | Time to result | Bare EVALSHA under this load | Factor | Submitted late | Redis per job | in scripts | Jobs | Refused | Failed |\n" +
		"| --- | ---: | --- | --- | --- | ---: | --- | ---: | ---: | ---: | --- | --- |\n")
	for _, m := range s.Scenarios {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %.1f us | %.1f us | %d | %s | %s |\n",
			m.Scenario.words(), thousands(m.JobsPerSecond), m.Assign.words(), m.Result.words(), m.Loaded.words(), factor(m.Assign.P50, m.Loaded.P50),
			m.late(), m.Redis.CPUPerJob, m.Redis.ScriptPerJob, m.Jobs, counts(m.Refused), counts(m.Failed))
	}
	b.WriteString("\nWhere Redis spends its time (microseconds and calls a job; commands called by scripts are also inside evalsha):\n\n")
	for _, m := range s.Scenarios {
		fmt.Fprintf(b, "- %s: %s\n", m.Scenario.words(), commands(m.Redis.Commands))
	}
}

// late is by how much the tool itself was late, which only an open loop can be.
func (m *measurements) late() string {
	if m.Late == nil {
		return "-"
	}
	return m.Late.words()
}

func (l latency) words() string {
	if l.Count == 0 {
		return "none"
	}
	return duration(l.P50) + " / " + duration(l.P99) + " / " + duration(l.P999)
}

// duration keeps three figures of a number of microseconds.
func duration(us int64) string {
	switch ms := float64(us) / 1000; {
	case us < 1000:
		return fmt.Sprintf("%d us", us)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

func factor(a, b int64) string {
	if b == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// thousands writes 12345.6 as 12,346.
func thousands(f float64) string {
	digits := fmt.Sprintf("%.0f", f)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func counts(m map[string]int64) string {
	if len(m) == 0 {
		return "0"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		// What failed is free text; a bar would end the cell.
		parts = append(parts, fmt.Sprintf("%s: %d", strings.ReplaceAll(name, "|", "/"), m[name]))
	}
	return strings.Join(parts, ", ")
}

func commands(list []commandCost) string {
	parts := make([]string, 0, len(list))
	for _, c := range list {
		parts = append(parts, fmt.Sprintf("%s %.2f us (%.2f)", c.Command, c.TimePerJob, c.CallsPerJob))
	}
	return strings.Join(parts, ", ")
}

// writeReport writes the report of the results at from.
func writeReport(from, to string) error {
	r, err := loadResults(from)
	if err != nil {
		return err
	}
	return writeFile(to, report(r))
}

// check compares the report with what the results give.
func check(from, to string) error {
	r, err := loadResults(from)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(to)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if !bytes.Equal(have, report(r)) {
		return fmt.Errorf("%w: %s is not what %s gives; run `go run ./bench/e2e -report`", errStale, to, from)
	}
	return nil
}
