package cell

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// MaxProgressItems is the most reports in one call of Progress.
const MaxProgressItems = batchItems

// ProgressReport is the latest progress that a handler reported for one attempt.
type ProgressReport struct {
	Attempt Attempt
	// Seq counts the reports of the attempt, from 1.
	Seq int64
	// Value is JSON of at most freeslot.MaxProgressBytes. It must not be changed any more.
	Value json.RawMessage
}

// ProgressOutcome says what a ProgressReport did.
type ProgressOutcome uint8

// The outcomes of a report.
const (
	// ProgressStale: the node does not own this attempt; nothing changed.
	ProgressStale ProgressOutcome = iota
	// ProgressTaken: the record has this report, or a later one.
	ProgressTaken
	// ProgressCancel: as ProgressTaken, and a client asked to cancel the job.
	ProgressCancel
)

// Progress stores what handlers of one node reported, in one call: 1 to MaxProgressItems reports,
// at most one for each attempt. It can be repeated: a report changes nothing once it or a later one
// was stored. Errors: *freeslot.Error for reports that cannot be sent, or from Redis; the reports
// may have been stored then.
func (c *Cell) Progress(
	ctx context.Context, node string, epoch Epoch, reports []ProgressReport,
) ([]ProgressOutcome, error) {
	if err := validateReports(node, epoch, reports); err != nil {
		return nil, err
	}
	l := c.layout
	keys := append(make([]string, 0, 1+len(reports)), l.Slots(node))
	args := append(make([]string, 0, 1+4*len(reports)), epoch)
	for i := range reports {
		r := &reports[i]
		keys = append(keys, l.Job(r.Attempt.Job))
		args = append(args, r.Attempt.Job, strconv.Itoa(r.Attempt.N), strconv.FormatInt(r.Seq, 10),
			rueidis.BinaryString(r.Value))
	}
	reply, err := c.runner.Call(ctx, c.scripts["progress"], keys, args).AsIntSlice()
	if err != nil {
		return nil, fmt.Errorf("progress of %d jobs of node %s: %w", len(reports), node, err)
	}
	if len(reply) != len(reports) {
		return nil, fmt.Errorf("progress of %d jobs of node %s: %d answers", len(reports), node, len(reply))
	}
	out := make([]ProgressOutcome, len(reply))
	for i, code := range reply {
		if code < int64(ProgressStale) || code > int64(ProgressCancel) {
			return nil, fmt.Errorf("progress of job %s: unknown code %d", reports[i].Attempt.Job, code)
		}
		out[i] = ProgressOutcome(code)
	}
	return out, nil
}

func validateReports(node string, epoch Epoch, reports []ProgressReport) error {
	if err := validateAgent(node, epoch); err != nil {
		return err
	}
	if len(reports) < 1 || len(reports) > MaxProgressItems {
		return freeslot.Invalid("reports", "has %d entries, expected 1 to %d", len(reports), MaxProgressItems)
	}
	for i := range reports {
		r := &reports[i]
		if err := ValidateJobID("job_id", r.Attempt.Job); err != nil {
			return err
		}
		switch {
		case r.Attempt.N < 1 || r.Seq < 1:
			return freeslot.Invalid("reports", "has number %d of attempt %d of job %s, expected them from 1", r.Seq,
				r.Attempt.N, r.Attempt.Job)
		case len(r.Value) > freeslot.MaxProgressBytes:
			return freeslot.Invalid("value", "has %d bytes, expected at most %d", len(r.Value), freeslot.MaxProgressBytes)
		case len(r.Value) == 0:
			return freeslot.Invalid("value", "is missing")
		}
		if err := freeslot.ValidateJSON("value", r.Value); err != nil {
			return err
		}
	}
	return nil
}
