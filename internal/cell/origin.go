package cell

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/freeslot/freeslot"
)

// Origin says why a job was submitted if no client did. The zero value is a client's job.
type Origin struct {
	// Schedule names the schedule that made the job, or the first one of a chain of requeues.
	Schedule string
	// RequeuedFrom is the id of the job that this one repeats.
	RequeuedFrom string
}

// String returns the text of a record's field origin: schedule and job, "-" for none; "" for a
// client's job.
func (o Origin) String() string {
	if o == (Origin{}) {
		return ""
	}
	return cmp.Or(o.Schedule, "-") + " " + cmp.Or(o.RequeuedFrom, "-")
}

func (o Origin) validate() error {
	if o.RequeuedFrom != "" {
		if err := ValidateJobID("requeued_from", o.RequeuedFrom); err != nil {
			return err
		}
	}
	if o.Schedule != "" {
		return freeslot.ValidateName("schedule", o.Schedule)
	}
	return nil
}

func parseOrigin(text string) (o Origin, err error) {
	if text == "" {
		return Origin{}, nil
	}
	schedule, from, ok := strings.Cut(text, " ")
	if !ok {
		return Origin{}, fmt.Errorf("is %q, expected a schedule and a job", text)
	}
	if schedule != "-" {
		o.Schedule = schedule
	}
	if from != "-" {
		o.RequeuedFrom = from
	}
	return o, o.validate()
}
