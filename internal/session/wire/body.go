package wire

import (
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// DecodeJob decodes a text that is one job, as strictly as a frame: unknown fields,
// fields given twice, null (but as a payload) and values of another type are refused,
// with the path of the field, which begins with "job". It copies what it keeps. The job
// is decoded, not checked: see [freeslot.Job.Validate].
func DecodeJob(data []byte) (freeslot.Job, *freeslot.Error) {
	d := bodyDecoder{requestDecoder: requestDecoder{cursor: cursor{data: data}}}
	err := d.decode(func(key []byte) *problem { return d.jobField(&d.job, &d.seen, key) })
	return d.job, err
}

// DecodeExplain is DecodeJob for the part of a job that decides where it goes, beside
// which there can be a "limit"; nil is none.
func DecodeExplain(data []byte) (job freeslot.Job, limit *int, err *freeslot.Error) {
	d := bodyDecoder{requestDecoder: requestDecoder{cursor: cursor{data: data}}}
	err = d.decode(func(key []byte) *problem {
		switch string(key) {
		case "payload", "priority", "max_attempts", "timeout_ms", "run_at_ms", "idempotency_key", "progress_timeout_ms", "on_lease_loss", "traceparent":
			return unknownField()
		case "limit":
			return d.limit(&limit)
		default:
			return d.jobField(&d.job, &d.seen, key)
		}
	})
	return d.job, limit, err
}

// bodyDecoder reads a job without a frame around it.
type bodyDecoder struct {
	requestDecoder
	job  freeslot.Job
	seen fields
	// outside is set once a field is wrong that is not the job's.
	outside bool
}

func (d *bodyDecoder) decode(field func(key []byte) *problem) *freeslot.Error {
	p := d.members(field)
	if p == nil {
		p = d.end()
	}
	if p == nil && !utf8.Valid(d.data) {
		p = d.notUTF8()
	}
	switch {
	case p == nil:
		return nil
	case d.outside:
		return p.asError()
	default:
		return p.in("job").asError()
	}
}

func (d *bodyDecoder) members(field func(key []byte) *problem) *problem {
	if p := d.openObject(); p != nil {
		return p
	}
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil || !ok {
			return p
		}
		if p := field(key); p != nil {
			return p.in(fieldName(key))
		}
	}
}

// limit refuses a second one as fields.add does.
func (d *bodyDecoder) limit(into **int) *problem {
	n, p := 0, (*problem)(nil)
	if *into != nil {
		p = &problem{text: "is given twice"}
	} else if n, p = d.smallInt(); p == nil {
		*into = &n
	}
	d.outside = p != nil
	return p
}

// notUTF8 blames the payload if it is what is wrong.
func (d *bodyDecoder) notUTF8() *problem {
	p := &problem{text: "is not valid UTF-8"}
	if !utf8.Valid(d.job.Payload) {
		p.field = "payload"
	}
	return p
}
