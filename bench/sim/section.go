package sim

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// Section is the part of the report that the results file gives. It depends on nothing but data. The plots are
// beside the file, as <figure>.svg in the folder results.
func Section(data []byte) ([]byte, error) {
	r := new(Results)
	if err := measure.Decode("sim.json", data, r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("## Simulated\n\nReplicas and nodes simulated event by event (bench/sim) on the code that chooses nodes, driven by the Azure LLM\ninference trace of 2023 and the node list of the Alibaba GPU trace of 2023.\n")
	r.reproduced(&b)
	for i := range r.Figures {
		r.Figures[i].write(&b)
	}
	return b.Bytes(), nil
}

func (r *Results) reproduced(b *bytes.Buffer) {
	if len(r.Reproduced) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Against measured runs\n\nThe simulation is told the delays, rates and durations of a measured run, and predicts its conflict rate. It must\ncome within a factor of %v of a run with at least %d conflicts.\n\n", MaxFactor, LeastConflicts)
	b.WriteString("| Run | Conflicts | Measured | Predicted (least to most of its runs) | Factor | Reproduced | Busy, measured / predicted | Jobs a call, measured / predicted |\n| --- | ---: | ---: | --- | ---: | --- | --- | --- |\n")
	for i := range r.Reproduced {
		p := &r.Reproduced[i]
		verdict := "yes"
		if err := p.Check(); err != nil {
			verdict = "**no**"
			if p.Conflicts < LeastConflicts {
				verdict = "too few"
			}
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s (%s to %s) | %.2f | %s | %s / %s | %.2f / %.2f |\n", p.words(), p.Conflicts, percent(p.Measured), percent(p.Predicted),
			percent(p.PredictedLow), percent(p.PredictedHigh), p.Factor, verdict, percent(p.MeasuredBusy), percent(p.PredictedBusy), p.MeasuredBatch, p.PredictedBatch)
	}
}

func (p *Reproduction) words() string {
	if p.About != "" {
		return strings.ReplaceAll(p.About, "|", "/")
	}
	return fmt.Sprintf("%s, %s, %s/s", measure.Plural(p.Replicas, "replica"), measure.Plural(p.Nodes, "node"), measure.Thousands(p.Rate))
}

func (f *Figure) write(b *bytes.Buffer) {
	name := f.Title
	if f.Quick {
		name += " (quick run)"
	}
	fmt.Fprintf(b, "\n### %s\n\n![%s](results/%s.svg)\n\n", name, f.Title, f.Name)
	for _, line := range f.Method {
		fmt.Fprintf(b, "- %s\n", line)
	}
	overCommits, leaks := f.Faults()
	fmt.Fprintf(b, "- Over-commits: %d. Runs that left a slot, a job or a reservation behind: %d.\n", overCommits, leaks)
	fmt.Fprintf(b, "- `%s`, commit %s, %s, %s.\n", strings.ReplaceAll(f.Command, "`", "'"), f.Commit, f.Date, f.Go)
	f.table(b)
}

// table shows the lines side by side where they share their points, and nothing where they do not.
func (f *Figure) table(b *bytes.Buffer) {
	if len(f.Lines) == 0 {
		return
	}
	for _, l := range f.Lines {
		if len(l.Points) != len(f.Lines[0].Points) {
			return
		}
		for i, p := range l.Points {
			if p.Run == nil || p.X != f.Lines[0].Points[i].X {
				return
			}
		}
	}
	fmt.Fprintf(b, "\n| %s |", f.X.Label)
	for _, l := range f.Lines {
		fmt.Fprintf(b, " %s |", l.Name)
	}
	fmt.Fprintf(b, "\n| ---: |%s\n", strings.Repeat(" ---: |", len(f.Lines)))
	for i, p := range f.Lines[0].Points {
		fmt.Fprintf(b, "| %v |", p.X)
		for _, l := range f.Lines {
			fmt.Fprintf(b, " %s |", f.Y.words(l.Points[i].Y))
		}
		b.WriteByte('\n')
	}
}

func (a Axis) words(v float64) string {
	if a.Percent {
		return percent(v)
	}
	return fmt.Sprintf("%.3g", v)
}

// percent keeps three figures.
func percent(v float64) string { return fmt.Sprintf("%.3g %%", v*100) }
