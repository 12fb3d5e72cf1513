package result

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// Section is the part of the report that the results file gives. It depends on nothing but data.
func Section(data []byte) ([]byte, error) {
	r := new(Results)
	if err := measure.Decode("core.json", data, r); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("## The core\n\n")
	r.targets(&b)
	r.runs(&b)
	for i := range r.Scenarios {
		r.Scenarios[i].write(&b)
	}
	return b.Bytes(), nil
}

// Words is one scenario alone, as the report has it.
func (s *Scenario) Words() string {
	var b bytes.Buffer
	one := Results{Scenarios: []Scenario{*s}}
	one.targets(&b)
	s.write(&b)
	return b.String()
}

func (r *Results) targets(b *bytes.Buffer) {
	b.WriteString("| Scenario | What | Target | Measured | Met |\n| --- | --- | --- | ---: | --- |\n")
	for _, s := range r.Scenarios {
		for _, t := range s.Targets {
			met := "yes"
			if !t.Met() {
				met = "**no**"
			}
			fmt.Fprintf(b, "| %s | %s | %s %s | %s | %s |\n", s.Name, cell(t.What), t.Bound, t.Unit.words(t.Limit), t.Unit.words(t.Measured), met)
		}
	}
}

// runs tells of each scenario by which command, of what and on what it was measured.
func (r *Results) runs(b *bytes.Buffer) {
	b.WriteString("\n| Scenario | Command | Commit | Date | Machine | Go | Redis | Durability | Took |\n| --- | --- | --- | --- | --- | --- | --- | --- | ---: |\n")
	for _, s := range r.Scenarios {
		name := s.Name
		if s.Short {
			name += " (short run)"
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s, %d cores, %s | %s | %s | %s | %.0f s |\n", name, cell(s.Command), s.Commit, s.Date,
			s.CPU, s.Cores, s.OS, s.Go, orNone(s.Redis), orNone(s.Durability), s.Seconds)
	}
}

func (s *Scenario) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s\n\n", s.Name)
	for _, line := range s.Method {
		fmt.Fprintf(b, "- %s\n", line)
	}
	for _, t := range s.Tables {
		t.write(b)
	}
}

func (t *Table) write(b *bytes.Buffer) {
	if t.Title != "" {
		fmt.Fprintf(b, "\n%s\n", t.Title)
	}
	fmt.Fprintf(b, "\n| %s |", t.First)
	for _, c := range t.Columns {
		fmt.Fprintf(b, " %s |", c.Name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(t.Columns)) + "\n")
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |", cell(row.Name))
		for i, c := range t.Columns {
			text := "-"
			if i < len(row.Values) && row.Values[i] != nil {
				text = c.Unit.words(*row.Values[i])
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteByte('\n')
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
