// Package finding tells what is wrong now, and what to do next.
//
// Each part of a replica knows its own troubles and offers a Source. A Board asks all sources, and
// remembers since when each finding has held.
package finding

import (
	"context"
	"strings"
)

// Severity says how soon a finding needs somebody.
type Severity string

// The severities.
const (
	// Critical: jobs are refused, or cannot run, or a list does not know its ids.
	Critical Severity = "critical"
	// Warning: jobs run, but something needs attention before they do not.
	Warning Severity = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	// ID is the same as long as the finding holds, such as nodes.silent.
	ID       string   `json:"id" doc:"The same as long as the finding holds, such as nodes.silent."`
	Severity Severity `json:"severity" enum:"critical,warning" doc:"critical: jobs are refused, or cannot run, or a list does not know its ids. warning: something needs attention before that happens."`
	// SinceMS is filled in by the Board if the source leaves it 0.
	SinceMS int64 `json:"since_ms" doc:"Since when it holds, in milliseconds since 1970: by the store's clock where the store knows it, else since when this replica has seen it, by its own."`
	// Text is one sentence without a full stop.
	Text string `json:"text" doc:"What is wrong, in words for people."`
	// Next is the next step, a sentence or a command.
	Next string `json:"next" doc:"What to do next."`
	// Names are some of the things that the finding is about, at most MaxNames.
	Names []string `json:"names,omitempty" doc:"Some of the nodes, queues or lists that the finding is about, at most ten."`
	// Link is filled in by the Board.
	Link string `json:"link,omitempty" doc:"The address in the console that shows what the finding is about, such as #/nodes?status=silent."`
	// Docs is filled in by the Board if the source leaves it empty.
	Docs string `json:"docs,omitempty" doc:"The section of the documentation about it, such as docs/redis.md#maxmemory."`
}

// MaxNames is the most names in a finding.
const MaxNames = 10

// Source offers the findings of one part of a replica.
type Source struct {
	Name string
	// Look returns what is wrong now, a bounded number of findings, sorted. It returns an error if
	// it cannot know, or findings together with Unchecked if it knows in part. It is called by one
	// goroutine at a time.
	Look func(ctx context.Context) ([]Finding, error)
	// Memory is true for a source that needs no call. The Board asks it in each look, and every few
	// seconds while no one looks, so it knows since when a finding holds.
	Memory bool
	// Watched is true for a source that needs a call, and that the Board asks every few seconds all
	// the same.
	Watched bool
}

// Unchecked is an error of Source.Look that comes together with findings. It holds what could not
// be checked, and why, a line for each thing.
type Unchecked []string

func (u Unchecked) Error() string { return strings.Join(u, "; ") }
