// Package report renders bench/RESULTS.md: one part from each results file that is there.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	core "github.com/freeslot/freeslot/bench/core/result"
	e2e "github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/sim"
)

// ErrStale is returned by Check when the report is not what the results give.
var ErrStale = errors.New("report is out of date")

// errNone is returned when there are no results at all.
var errNone = errors.New("no results file")

// section renders the contents of one results file. It depends on nothing else.
type section struct {
	file   string
	render func(data []byte) ([]byte, error)
}

// sections are in the order of the report. Files that are missing are left out.
var sections = []section{
	{"core.json", core.Section},
	{"e2e.json", e2e.Section},
	{"sim.json", sim.Section},
}

const head = "<!-- Written by `make bench-report` from the JSON files in results. Do not edit. -->\n# Measured\n"

// Render writes the results in a folder for readers.
func Render(folder string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	found := false
	for _, s := range sections {
		data, err := os.ReadFile(filepath.Join(folder, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		part, err := s.render(data)
		if err != nil {
			return nil, err
		}
		found = true
		b.WriteByte('\n')
		b.Write(part)
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
