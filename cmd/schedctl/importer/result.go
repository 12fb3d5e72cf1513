package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache/locked"
)

// What became of a node.
const (
	// Copied: the node is in Redis as the list has it, by this import.
	Copied = "copied"
	// ToCopy: it would be copied but for the dry run.
	ToCopy = "to copy"
	// Same: it was there already.
	Same = "same"
	// Differs: Redis has something else after the copy.
	Differs = "differs"
	// Refused: it is no valid node.
	Refused = "refused"
	// Left: its agent speaks for it.
	Left = "left"
)

// Result is what became of one node.
type Result struct {
	NodeID string `json:"node_id"`
	Result string `json:"result"`
	// Field and Reason are of a refusal, the first where Errors has all; Reason alone is
	// of a node that was left.
	Field  string                `json:"field,omitempty"`
	Reason string                `json:"reason,omitempty"`
	Errors []freeslot.FieldError `json:"errors,omitempty"`
	// Differences are between the list (a) and Redis (b): after the copy, or before it
	// in a dry run.
	Differences []locked.Difference `json:"differences,omitempty"`
	// Ignored are fields that mean nothing here.
	Ignored []string `json:"ignored,omitempty"`
}

// Failure is an error when something is not in Redis as the list has it. A node that
// was left to its agent is not such: the agent knows better.
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
	return fmt.Errorf("%d of %d nodes %s: %s", not, len(results), verb, sayCounts(counts, what...))
}

// sayCounts lists the results that there are.
func sayCounts(counts map[string]int, results ...string) string {
	parts := make([]string, 0, len(results))
	for _, result := range results {
		if counts[result] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[result], result))
		}
	}
	return strings.Join(parts, ", ")
}

// Count is how many nodes came to each result.
func Count(results []Result) map[string]int {
	counts := make(map[string]int)
	for _, r := range results {
		counts[r.Result]++
	}
	return counts
}

// Summary says how many nodes came to which result.
func Summary(results []Result) string {
	return fmt.Sprintf("%d nodes: %s", len(results), sayCounts(Count(results), Copied, ToCopy, Same, Left, Differs, Refused))
}

// refuse takes over what is wrong with the node, of which there is something.
func (r *Result) refuse(refusals []refusal) {
	r.Result, r.Field, r.Reason = Refused, refusals[0].field, refusals[0].reason
	for _, bad := range refusals {
		r.Errors = append(r.Errors, freeslot.FieldError{Field: bad.field, Message: bad.field + " " + bad.reason})
	}
}

// Why says in one line what speaks against a copy, and what was not read.
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
