package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/plural"
)

// subjectsAtOnce is how many subjects a request has.
const subjectsAtOnce = 1000

type chainEvaluateCmd struct {
	oneChain
	Keys []string          `arg:"" optional:"" name:"key" help:"Keys of subjects."`
	Attr map[string]string `placeholder:"NAME=VALUE" help:"An attribute of all these subjects; can be repeated. A value that is JSON, such as 18 or true, is a number or a boolean."`
	File string            `placeholder:"FILE" help:"Subjects, one a line: a key, or JSON with key and attributes; - reads standard input."`
}

// Run asks for decisions.
func (c *chainEvaluateCmd) Run(a *app) error {
	subjects, err := c.subjects(a)
	if err != nil {
		return err
	}
	var out server.EvaluateAnswer
	for part := range slices.Chunk(subjects, subjectsAtOnce) {
		var more server.EvaluateAnswer
		request := server.EvaluateRequest{Subjects: part}
		if err := a.call(http.MethodPost, c.path()+"/evaluate", nil, request, &more); err != nil {
			return err
		}
		out.Decisions = append(out.Decisions, more.Decisions...)
	}
	if a.json {
		return a.printJSON(out.Decisions)
	}
	rows := [][]string{{"KEY", "OUTCOME", "VALUE", "RULE", "REASON", "VERSION", "DOUBT"}}
	for i, d := range out.Decisions {
		outcome := d.Outcome
		if d.Variant != "" {
			outcome += ": " + d.Variant
		}
		rows = append(rows, []string{
			subjects[i].Key, outcome, dash(string(d.Value)), dash(d.Rule), d.Reason, fmt.Sprint(d.Version), dash(d.Doubt),
		})
	}
	return table(a.out, rows)
}

func (c *chainEvaluateCmd) subjects(a *app) (subjects []server.ChainSubject, err error) {
	attributes := make(map[string]json.RawMessage, len(c.Attr))
	for name, value := range c.Attr {
		if attributes[name] = json.RawMessage(value); !json.Valid([]byte(value)) {
			if attributes[name], err = json.Marshal(value); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range c.Keys {
		subjects = append(subjects, server.ChainSubject{Key: key, Attributes: attributes})
	}
	if c.File != "" {
		more, err := a.readSubjects(c.File)
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, more...)
	}
	if len(subjects) == 0 {
		return nil, usage("name a key or --file")
	}
	return subjects, nil
}

// readSubjects reads a file with a subject a line: a key, or JSON.
func (a *app) readSubjects(file string) (subjects []server.ChainSubject, err error) {
	text, name, err := a.readInput(file, "the subjects")
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return nil, fmt.Errorf("line %d of %s is empty, expected a key or JSON", n, name)
		}
		s := server.ChainSubject{Key: string(line)}
		if line[0] == '{' {
			s = server.ChainSubject{}
			if err := freeslot.DecodeStrict("subject", line, &s); err != nil {
				return nil, fmt.Errorf("line %d of %s: %w", n, name, err)
			}
		}
		subjects = append(subjects, s)
	}
	if n == 0 {
		return nil, errors.New(name + " is empty, expected a subject a line")
	}
	return subjects, nil
}

// compare says how the outcomes of a sample change with a document.
func (c *chainApplyCmd) compare(a *app, document json.RawMessage) error {
	subjects, err := a.readSubjects(c.DryRun)
	if err != nil {
		return err
	}
	var all server.CompareAnswer
	counts := make(map[[2]string]int)
	for part := range slices.Chunk(subjects, subjectsAtOnce) {
		var out server.CompareAnswer
		request := server.CompareRequest{Document: document, Subjects: part}
		if err := a.call(http.MethodPost, c.path()+"/compare", nil, request, &out); err != nil {
			return err
		}
		all.Version, all.Subjects, all.Changed = out.Version, all.Subjects+out.Subjects, all.Changed+out.Changed
		all.Unknown += out.Unknown
		all.Examples = append(all.Examples, out.Examples...)
		for _, m := range out.Changes {
			counts[[2]string{m.Before, m.After}] += m.Subjects
		}
	}
	all.Examples = all.Examples[:min(len(all.Examples), 10)]
	for _, way := range slices.SortedFunc(maps.Keys(counts), func(x, y [2]string) int {
		return cmp.Or(counts[y]-counts[x], strings.Compare(x[0]+" "+x[1], y[0]+" "+y[1]))
	}) {
		all.Changes = append(all.Changes, server.ChainMoved{Before: way[0], After: way[1], Subjects: counts[way]})
	}
	if a.json {
		return a.printJSON(all)
	}
	return c.printComparison(a, &all)
}

func (c *chainApplyCmd) printComparison(a *app, all *server.CompareAnswer) error {
	against := fmt.Sprintf("version %d", all.Version)
	if all.Version == 0 {
		against = "no chain, which decides unknown"
	}
	err := a.println("the document is valid; against %s it changes the outcome of %d of %s", against, all.Changed,
		plural.Of(all.Subjects, "subject", "subjects"))
	if err == nil && all.Unknown > 0 {
		err = a.println(
			"%d of them are unknown with it: does the sample have the attributes that the rules need?", all.Unknown,
		)
	}
	if err != nil || all.Changed == 0 {
		return err
	}
	rows := [][]string{{"BEFORE", "AFTER", "SUBJECTS"}}
	for _, m := range all.Changes {
		rows = append(rows, []string{m.Before, m.After, fmt.Sprint(m.Subjects)})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	rows = [][]string{{"FOR EXAMPLE", "BEFORE", "AFTER"}}
	for _, e := range all.Examples {
		rows = append(rows, []string{e.Key, e.Before, e.After})
	}
	if err := a.println(""); err != nil {
		return err
	}
	return table(a.out, rows)
}
