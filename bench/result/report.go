package result

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// ErrStale is returned by Check when the report is not what the results give.
var ErrStale = errors.New("report is out of date")

// errNone is returned when there are no results at all.
var errNone = errors.New("no results file")

const head = `<!-- Written by ` + "`make bench-report`" + ` from the JSON files in results. Do not edit. -->
# Measured

What each part does and how to read its figures: [README](README.md). Times with several values are p50 / p99 / p99.9.
`

// sections are the headings of the results files, in the order of the report. Files that are
// missing are left out.
var sections = []struct{ file, title string }{
	{"peers.json", "Beside its peers"},
	{"core.json", "The core"},
	{"locks.json", "Locks"},
	{"registry.json", "Registry"},
	{"lists.json", "Name lists"},
	{"sdk.json", "SDKs"},
	{"console.json", "The console"},
	{"e2e.json", "End to end"},
	{"sim.json", "Simulated"},
}

// Render writes the results in a folder for readers.
func Render(folder string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	found := false
	for _, s := range sections {
		f, err := Load(filepath.Join(folder, s.file))
		if err != nil {
			return nil, err
		}
		if len(f.Parts) == 0 {
			continue
		}
		found = true
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		f.targets(&b)
		f.runs(&b)
		for i := range f.Parts {
			f.Parts[i].write(&b)
		}
	}
	if !found {
		return nil, fmt.Errorf("%w in %s", errNone, folder)
	}
	return b.Bytes(), nil
}

// Write renders the results in a folder into the file to.
func Write(folder, to string) error {
	text, err := Render(folder)
	if err != nil {
		return err
	}
	return measure.WriteFile(to, text)
}

// Check compares the report with what the results in the folder give.
func Check(folder, report string) error {
	want, err := Render(folder)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%w: %s is not what %s gives; run `make bench-report`", ErrStale, report, folder)
	}
	return nil
}

// Words is one part alone, as the report has it.
func (p *Part) Words() string {
	var b bytes.Buffer
	one := File{Parts: []Part{*p}}
	one.targets(&b)
	p.write(&b)
	return b.String()
}

func (f *File) targets(b *bytes.Buffer) {
	heading := "\n| Part | What | Target | Measured | Met |\n| --- | --- | --- | --- | --- |\n"
	for i := range f.Parts {
		for k := range f.Parts[i].Targets {
			t := &f.Parts[i].Targets[k]
			measured, met := "not measured", "-"
			if t.Measured != nil {
				measured, met = t.Unit.words(*t.Measured), "yes"
				if !t.Met() {
					met = "**no**"
				}
				if t.Note != "" {
					measured += " (" + cell(t.Note) + ")"
				}
			}
			fmt.Fprintf(b, "%s| %s | %s | %s %s | %s | %s |\n", heading, f.Parts[i].Name, cell(t.What), t.Bound, t.Unit.words(t.Limit), measured, met)
			heading = ""
		}
	}
}

// runs names for each part the command, the commit, the machine and the servers.
func (f *File) runs(b *bytes.Buffer) {
	b.WriteString("\n| Part | Command | Commit | Date | Machine | Go | Servers | Took |\n| --- | --- | --- | --- | --- | --- | --- | ---: |\n")
	for i := range f.Parts {
		p := &f.Parts[i]
		servers := p.Servers
		if servers == "" {
			servers = "none"
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s, %d cores, %s | %s | %s | %.0f s |\n", p.title(), cell(p.Command), p.Commit, p.Date,
			p.CPU, p.Cores, p.OS, p.Go, cell(servers), p.Seconds)
	}
}

func (p *Part) title() string {
	if p.Short {
		return p.Name + " (short run)"
	}
	return p.Name
}

func (p *Part) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s\n\n", p.title())
	for _, line := range p.Method {
		fmt.Fprintf(b, "- %s\n", line)
	}
	for _, picture := range p.Plots {
		fmt.Fprintf(b, "\n![%s](results/%s)\n", picture.Title, picture.File)
	}
	for _, t := range p.Tables {
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
			if i < len(row.Figures) && row.Figures[i] != nil {
				text = c.Unit.join(row.Figures[i])
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteByte('\n')
	}
}

func (u Unit) join(f Figure) string {
	words := make([]string, len(f))
	for i, v := range f {
		words[i] = u.words(v)
	}
	return strings.Join(words, " / ")
}

// cell keeps free text inside its cell of a table.
func cell(text string) string { return strings.NewReplacer("|", "/", "\n", " ").Replace(text) }
