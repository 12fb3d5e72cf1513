package cell

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/freeslot/freeslot"
)

// decodeSpec reads a job in the form that encodeSubmission writes.
func decodeSpec(spec []byte) (*freeslot.Job, error) {
	job := new(freeslot.Job)
	// encoding/json takes more than twice as long. A payload may repeat names.
	if err := json.Unmarshal(spec, job, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return job, nil
}
