package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/plural"
)

// The results for a node.
const (
	// Copied: the node is in Redis as the list has it, by this import.
	Copied = "copied"
	// ToCopy: it would be copied without the dry run.
	ToCopy = "to copy"
	// Same: it was there already.
	Same = "same"
	// Differs: Redis has something else after the copy.
	Differs = "differs"
	// Refused: it is not valid.
	Refused = "refused"
	// Left: it was left to its agent.
	Left = "left"
)

// Result is the result for one node.
type Result struct {
	NodeID string `json:"node_id"`
	Result string `json:"result"`
	// Field and Reason come from the first refusal; Errors holds all. A node that was left has only
	// Reason.
	Field  string                `json:"field,omitempty"`
	Reason string                `json:"reason,omitempty"`
	Errors []freeslot.FieldError `json:"errors,omitempty"`
	// Differences lie between the list (a) and Redis (b): after the copy, or before it in a dry
	// run.
	Differences []locked.Difference `json:"differences,omitempty"`
	// Ignored are fields that have no meaning here.
	Ignored []string `json:"ignored,omitempty"`
}

// Failure returns an error if a node differs or is refused. A node that was left to its agent does
// not count as a failure: the agent knows better.
func Failure(results []Result, dryRun bool) error {
	counts := Count(results)
	if counts[Differs]+counts[Refused] == 0 {
		return nil
	}
	what, verb := []string{Left, Differs, Refused}, "are not in Redis as the list has them"
	if dryRun {
		verb = "would not be in Redis as the list has them"
	}
	not := 0
	for _, result := range what {
		not += counts[result]
	}
	if not == 1 {
		verb = strings.Replace(verb, "are not", "is not", 1)
		verb = strings.Replace(verb, "list has them", "list has it", 1)
	}
	return fmt.Errorf("%d of %s %s: %s", not, plural.Of(len(results), "node", "nodes"), verb, sayCounts(counts, what...))
}

// sayCounts lists the results that occur.
func sayCounts(counts map[string]int, results ...string) string {
	parts := make([]string, 0, len(results))
	for _, result := range results {
		if counts[result] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[result], result))
		}
	}
	return strings.Join(parts, ", ")
}

// Count counts the nodes by result.
func Count(results []Result) map[string]int {
	counts := make(map[string]int)
	for _, r := range results {
		counts[r.Result]++
	}
	return counts
}

// Summary lists the numbers of nodes by result.
func Summary(results []Result) string {
	return fmt.Sprintf(
		"%s: %s", plural.Of(len(results), "node", "nodes"),
		sayCounts(Count(results), Copied, ToCopy, Same, Left, Differs, Refused),
	)
}

// refuse takes over the faults of the node, at least one.
func (r *Result) refuse(refusals []refusal) {
	r.Result, r.Field, r.Reason = Refused, refusals[0].field, refusals[0].reason
	for _, bad := range refusals {
		r.Errors = append(r.Errors, freeslot.FieldError{Field: bad.field, Message: bad.field + " " + bad.reason})
	}
}

// Why returns one line with the reasons against a copy, and the fields that were not read.
func (r *Result) Why() string {
	var parts []string
	for _, e := range r.Errors {
		parts = append(parts, e.Message)
	}
	if r.Reason != "" && len(r.Errors) == 0 {
		parts = append(parts, r.Reason)
	}
	for _, d := range r.Differences {
		parts = append(parts, fmt.Sprintf("%s is %s in the list, %s in Redis", d.Field, excerpt(d.A), excerpt(d.B)))
	}
	if len(r.Ignored) > 0 {
		parts = append(parts, "not read: "+strings.Join(r.Ignored, ", "))
	}
	return strings.Join(slices.Compact(parts), "; ")
}
