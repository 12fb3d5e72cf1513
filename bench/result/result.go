// Package result owns what the load tools record: one JSON file for each tool, all of one shape,
// and RESULTS.md, which is rendered from them.
package result

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/bench/measure"
)

// File is the results file of a tool: the last run of each of its parts.
type File struct {
	Parts []Part `json:"parts"`
}

// Part is one run of one part of a tool.
type Part struct {
	Name string `json:"name"`
	measure.Machine
	// Servers names the servers that took part, with their versions and how they kept data. Empty:
	// none did.
	Servers string `json:"servers,omitempty"`
	// Short marks a run that shows only that the part works.
	Short   bool    `json:"short,omitempty"`
	Seconds float64 `json:"seconds"`
	// Method describes what was done, a sentence or two in each element.
	Method  []string `json:"method"`
	Targets []Target `json:"targets,omitempty"`
	Plots   []Plot   `json:"plots,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
}

// Plot is a picture beside the results file.
type Plot struct {
	Title string `json:"title"`
	File  string `json:"file"`
}

// Table has a name and a figure for each column in each row.
type Table struct {
	Title   string   `json:"title,omitempty"`
	First   string   `json:"first"` // heading of the names
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// NewTable makes a table without rows. A column is its name, and its unit in brackets where it has
// one, such as "p99 [ms]".
func NewTable(first string, columns ...string) Table {
	return Table{First: first, Columns: Columns(columns...)}
}

// Columns reads columns as NewTable does.
func Columns(columns ...string) []Column {
	out := make([]Column, len(columns))
	for i, text := range columns {
		name, unit, _ := strings.Cut(strings.TrimSuffix(text, "]"), " [")
		out[i] = Column{Name: name, Unit: Unit(unit)}
	}
	return out
}

// Add adds a row. A float64 is rounded to four figures, whole numbers and a Figure stay as they
// are, and nil was not measured.
func (t *Table) Add(name string, values ...any) {
	row := Row{Name: name, Figures: make([]Figure, len(values))}
	for i, v := range values {
		switch v := v.(type) {
		case nil:
		case Figure:
			row.Figures[i] = v
		case float64:
			row.Figures[i] = Figure{measure.FourFigures(v)}
		case int:
			row.Figures[i] = Figure{float64(v)}
		case int64:
			row.Figures[i] = Figure{float64(v)}
		default:
			panic(fmt.Sprintf("%s: %T is no figure", name, v))
		}
	}
	t.Rows = append(t.Rows, row)
}

// Column is the heading and the unit of one figure of each row.
type Column struct {
	Name string `json:"name"`
	Unit Unit   `json:"unit,omitempty"`
}

// Row is one line of a table.
type Row struct {
	Name    string   `json:"name"`
	Figures []Figure `json:"figures"`
}

// Figure is a value, or several of one kind, such as p50, p99 and p99.9. A nil Figure was not
// measured. In JSON a single value is a number.
type Figure []float64

// MarshalJSON implements json.Marshaler.
func (f Figure) MarshalJSON() ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal([]float64(f))
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(data []byte) error {
	if data[0] == '[' || data[0] == 'n' {
		return json.Unmarshal(data, (*[]float64)(f))
	}
	*f = make(Figure, 1)
	return json.Unmarshal(data, &(*f)[0])
}

// Figures makes a figure of each value.
func Figures(values ...float64) []Figure {
	out := make([]Figure, len(values))
	for i, v := range values {
		out[i] = Figure{v}
	}
	return out
}

// Quantiles is p50, p99 and p99.9 of a latency in microseconds; nil without any.
func Quantiles(l measure.Latency) Figure {
	if l.Count == 0 {
		return nil
	}
	return Figure{float64(l.P50), float64(l.P99), float64(l.P999)}
}

// Bound is how a measured value is held against its limit.
type Bound string

// The bounds.
const (
	AtMost  Bound = "at most"
	AtLeast Bound = "at least"
	Exactly Bound = "exactly"
)

// Target is one promise and what was measured of it.
type Target struct {
	What  string  `json:"what"`
	Unit  Unit    `json:"unit,omitempty"`
	Bound Bound   `json:"bound"`
	Limit float64 `json:"limit"`
	// Measured is nil where something that the target needs was not measured.
	Measured *float64 `json:"measured"`
	// Note explains the measured value, for example what it is a ratio of.
	Note string `json:"note,omitempty"`
}

// Met reports whether the target was reached.
func (t *Target) Met() bool {
	if t.Measured == nil {
		return false
	}
	switch t.Bound {
	case AtMost:
		return *t.Measured <= t.Limit
	case AtLeast:
		return *t.Measured >= t.Limit
	default:
		return *t.Measured == t.Limit
	}
}

// Missed names the targets that were not reached.
func (p *Part) Missed() (names []string) {
	for i := range p.Targets {
		if !p.Targets[i].Met() {
			names = append(names, p.Targets[i].What)
		}
	}
	return names
}

// Put replaces the part of that name, or adds it, and keeps the parts in the order of names; others
// come last.
func (f *File) Put(p Part, names []string) {
	i := slices.IndexFunc(f.Parts, func(have Part) bool { return have.Name == p.Name })
	if i < 0 {
		f.Parts = append(f.Parts, p)
	} else {
		f.Parts[i] = p
	}
	slices.SortStableFunc(f.Parts, func(a, b Part) int {
		return cmp.Compare(uint(slices.Index(names, a.Name)), uint(slices.Index(names, b.Name)))
	})
}

// Load reads a results file. A file that does not exist has no parts. A field that is not known is
// an error: the report of half a file would look complete.
func Load(path string) (*File, error) {
	f := new(File)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return nil, fmt.Errorf("results %s: %w", path, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("results %s: something follows the results", path)
	}
	return f, nil
}

// Save writes a results file.
func (f *File) Save(path string) error {
	data, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return measure.WriteFile(path, append(data, '\n'))
}
