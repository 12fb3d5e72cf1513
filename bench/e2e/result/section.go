package result

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// Section is the part of the report that the results file gives. It depends on nothing but data.
func Section(data []byte) ([]byte, error) {
	r := new(Results)
	if err := measure.Decode("e2e.json", data, r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("## End to end\n\n")
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n| Command | `%s` |\n| Commit | %s |\n| Date | %s |\n| Machine | %s, %d cores, %s |\n| Go | %s |\n",
		r.Command, r.Commit, r.Date, r.CPU, r.Cores, r.OS, r.Go)
	fmt.Fprintf(&b, "| System | %s, %s of %d slots in one process, 1 Redis, %s; all on this machine |\n",
		measure.Plural(r.Replicas, "replica"), measure.Plural(r.Nodes, "node"), r.Slots, measure.Plural(r.Sessions, "WebSocket session"))
	fmt.Fprintf(&b, "| Jobs | payload of %d bytes; the handler does nothing |\n", r.Payload)
	fmt.Fprintf(&b, "| Window | %s for each scenario, after %s of warm-up |\n", measure.Millis(r.MeasureMS), measure.Millis(r.WarmUpMS))
	for i := range r.Systems {
		r.Systems[i].write(&b)
	}
	b.WriteString(notes)
	return b.Bytes(), nil
}

const notes = `
### How to read this

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

func (s *System) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s, append-only file: %s\n\n", s.Redis, s.AOF)
	fmt.Fprintf(b, "Bare EVALSHA, back to back on the idle system: %s.\n\n", s.Idle.Words())
	b.WriteString("| Load | Jobs/s | Time to assign | Time to result | Bare EVALSHA under this load | Factor | Submitted late | Redis per job | in scripts | Jobs | Refused | Failed |\n" +
		"| --- | ---: | --- | --- | --- | ---: | --- | ---: | ---: | ---: | --- | --- |\n")
	for _, m := range s.Scenarios {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %.1f us | %.1f us | %d | %s | %s |\n",
			m.Scenario.Words(), measure.Thousands(m.JobsPerSecond), m.Assign.Words(), m.Result.Words(), m.Loaded.Words(), factor(m.Assign.P50, m.Loaded.P50),
			m.late(), m.Redis.CPUPerJob, m.Redis.ScriptPerJob, m.Jobs, Counts(m.Refused), Counts(m.Failed))
	}
	b.WriteString("\nWhere Redis spends its time (microseconds and calls a job; commands called by scripts are also inside evalsha):\n\n")
	for _, m := range s.Scenarios {
		fmt.Fprintf(b, "- %s: %s\n", m.Scenario.Words(), commands(m.Redis.Commands))
	}
}

// late is by how much the tool itself was late, which only an open loop can be.
func (m *Measurements) late() string {
	if m.Late == nil {
		return "-"
	}
	return m.Late.Words()
}

func factor(a, b int64) string {
	if b == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

// Counts writes counts by name.
func Counts(m map[string]int64) string {
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

func commands(list []measure.CommandCost) string {
	parts := make([]string, 0, len(list))
	for _, c := range list {
		parts = append(parts, fmt.Sprintf("%s %.2f us (%.2f)", c.Command, c.TimePerJob, c.CallsPerJob))
	}
	return strings.Join(parts, ", ")
}
