// Package report renders bench/RESULTS.md: one part from each results file that is there.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	core "github.com/freeslot/freeslot/bench/core/result"
	e2e "github.com/freeslot/freeslot/bench/e2e/result"
	"github.com/freeslot/freeslot/bench/measure"
	peers "github.com/freeslot/freeslot/bench/peers/result"
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
	// plots are the pictures beside the results by their names; nil where the report has none of its own.
	plots func(data []byte) (map[string][]byte, error)
}

// sections are in the order of the report. Files that are missing are left out.
var sections = []section{
	{file: peers.File, render: peers.Section, plots: peers.Plots},
	{file: "core.json", render: core.Section},
	{file: "e2e.json", render: e2e.Section},
	{file: "sim.json", render: sim.Section},
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

// Plots draws the pictures of the results in a folder, by their names.
func Plots(folder string) (map[string][]byte, error) {
	all := make(map[string][]byte)
	for _, s := range sections {
		if s.plots == nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		some, err := s.plots(data)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, some)
	}
	return all, nil
}

// Write renders the results in a folder into the file to, and their pictures into the folder.
func Write(folder, to string) error {
	text, err := Render(folder)
	if err != nil {
		return err
	}
	plots, err := Plots(folder)
	if err != nil {
		return err
	}
	for name, svg := range plots {
		if err := measure.WriteFile(filepath.Join(folder, name), svg); err != nil {
			return err
		}
	}
	return measure.WriteFile(to, text)
}

// Check compares the report, and the pictures, with what the results in the folder give.
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
	plots, err := Plots(folder)
	if err != nil {
		return err
	}
	for name, svg := range plots {
		have, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if !bytes.Equal(have, svg) {
			return fmt.Errorf("%w: %s is not what %s gives; run `make bench-report`", ErrStale, name, folder)
		}
	}
	return nil
}
