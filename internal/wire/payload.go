package wire

import (
	"fmt"

	"github.com/freeslot/freeslot"
)

// CheckPayload refuses a payload over limits.max_payload_bytes with payload_too_large. Every check
// of a payload's size is this one: WebSocket sessions, HTTP, schedules and clients call it. path is
// the job's path in the error, a *freeslot.Error: "job" or "jobs[3]".
func CheckPayload(path string, job *freeslot.Job, maxBytes int) error {
	if len(job.Payload) <= maxBytes {
		return nil
	}
	field := path + ".payload"
	return &freeslot.Error{
		Code: freeslot.CodePayloadTooLarge, Field: field,
		Message: fmt.Sprintf("%s has %d bytes, the limit is %d", field, len(job.Payload), maxBytes),
	}
}
