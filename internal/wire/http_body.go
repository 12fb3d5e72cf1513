package wire

import (
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// DecodeJob decodes a text that is one job, as strictly as a frame: unknown fields, repeated
// fields, null (except as a payload) and values of another type are refused. The path of the field
// begins with "job". DecodeJob copies what it keeps. It does not check the job: see
// [freeslot.Job.Validate].
func DecodeJob(data []byte) (freeslot.Job, *freeslot.Error) {
	var job freeslot.Job
	if err := unmarshalStrict(data, &job); err != nil {
		return freeslot.Job{}, refuse("job", err)
	}
	switch {
	case !utf8.Valid(job.Payload):
		return freeslot.Job{}, freeslot.Invalid("job.payload", notUTF8)
	case !utf8.Valid(data):
		return freeslot.Job{}, freeslot.Invalid("job", notUTF8)
	default:
		return job, nil
	}
}

// DecodeExplain decodes, as DecodeJob does, the part of a job that decides where it goes. The text
// can also have a "limit"; nil means that it has none.
func DecodeExplain(data []byte) (job freeslot.Job, limit *int, err *freeslot.Error) {
	var part struct {
		Service          string               `json:"service"`
		Requirement      freeslot.Requirement `json:"requirement"`
		AffinityKey      string               `json:"affinity_key"`
		Slots            int                  `json:"slots"`
		ConcurrencyKey   string               `json:"concurrency_key"`
		ConcurrencyLimit int                  `json:"concurrency_limit"`
		Limit            *int                 `json:"limit"`
	}
	if err := unmarshalStrict(data, &part); err != nil {
		refusal := refuse("job", err)
		if refusal.Field == "job.limit" {
			refusal = refuse("", err)
		}
		return freeslot.Job{}, nil, refusal
	}
	if !utf8.Valid(data) {
		return freeslot.Job{}, nil, freeslot.Invalid("job", notUTF8)
	}
	return freeslot.Job{
		Service: part.Service, Requirement: part.Requirement, AffinityKey: part.AffinityKey, Slots: part.Slots,
		ConcurrencyKey: part.ConcurrencyKey, ConcurrencyLimit: part.ConcurrencyLimit,
	}, part.Limit, nil
}
