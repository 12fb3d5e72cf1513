package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// RequestType says what a client wants.
type RequestType string

// The requests of the protocol.
const (
	TypeSubmit RequestType = "submit"
	TypeCancel RequestType = "cancel"
	TypeAttach RequestType = "attach"
	TypePing   RequestType = "ping"
)

// RequestTypes lists every RequestType.
func RequestTypes() []RequestType {
	return []RequestType{TypeSubmit, TypeCancel, TypeAttach, TypePing}
}

// MaxIDLength is the longest id and job_id, in bytes.
const MaxIDLength = 64

// Request is a frame from a client.
type Request struct {
	Type RequestType
	// ID is the client's name for the request; every answer carries it.
	ID string
	// Jobs are what TypeSubmit submits: one, unless Batch is set.
	Jobs []freeslot.Job
	// Batch is true when the client sent "jobs": answers then carry an index.
	Batch bool
	// JobID is what TypeCancel and TypeAttach speak of.
	JobID string
}

// Limits bounds what a client can ask for.
type Limits struct {
	// MaxPayloadBytes is the largest payload of one job.
	MaxPayloadBytes int
	// MaxBatch is the most jobs of one frame.
	MaxBatch int
	// MaxFrameBytes is the largest frame; whoever reads frames enforces it.
	MaxFrameBytes int
}

// Path names job i of the request in errors: "job" or "jobs[3]".
func (r *Request) Path(i int) string {
	if r.Batch {
		return "jobs[" + strconv.Itoa(i) + "]"
	}
	return "job"
}

// Index is what answers for job i carry: i in a batch, otherwise NoIndex.
func (r *Request) Index(i int) int {
	if r.Batch {
		return i
	}
	return NoIndex
}

// CheckJob checks job i of the request: the size and syntax of its payload and
// all that freeslot.Job.Validate checks.
func (l Limits) CheckJob(r *Request, i int) *freeslot.Error {
	job := &r.Jobs[i]
	if len(job.Payload) > l.MaxPayloadBytes {
		field := r.Path(i) + ".payload"
		return &freeslot.Error{
			Code: freeslot.CodePayloadTooLarge, Field: field,
			Message: fmt.Sprintf("%s has %d bytes, the limit is %d", field, len(job.Payload), l.MaxPayloadBytes),
		}
	}
	if err := job.Validate(r.Path(i)); err != nil {
		return AsError(err)
	}
	return nil
}

// ErrNotUTF8 is what DecodeRequest returns, itself, for a frame that no
// WebSocket client may send as text. RFC 6455 has the connection end with 1007.
var ErrNotUTF8 = (&problem{text: "is not valid UTF-8"}).asError()

// DecodeRequest decodes one frame. It copies what it keeps, so the caller may
// reuse the frame. Jobs are decoded, not checked: see CheckJob.
//
// A frame that is refused is refused as a whole; the request then holds nothing
// but the ID, and that only where it could be made out.
func (l Limits) DecodeRequest(frame []byte) (Request, *freeslot.Error) {
	if !utf8.Valid(frame) {
		return Request{}, ErrNotUTF8
	}
	d := requestDecoder{cursor: cursor{data: frame}, limits: l}
	p := d.decode()
	if p == nil {
		p = d.check()
	}
	if p != nil {
		return Request{ID: findID(frame)}, p.asError()
	}
	return d.request, nil
}

// fields is the set of fields that an object had so far.
type fields uint16

// add refuses a field that was there before: the two could disagree, and which
// of them counts would be the decoder's whim.
func (f *fields) add(bit fields) *problem {
	if *f&bit != 0 {
		return &problem{text: "is given twice"}
	}
	*f |= bit
	return nil
}

const (
	hasType fields = 1 << iota
	hasID
	hasJob
	hasJobs
	hasJobID
)

type requestDecoder struct {
	cursor
	limits  Limits
	seen    fields
	request Request
}

func (d *requestDecoder) decode() *problem {
	if p := d.openObject(); p != nil {
		return p
	}
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil {
			return p
		}
		if !ok {
			return d.end()
		}
		if p := d.field(key); p != nil {
			return p.in(fieldName(key))
		}
	}
}

func (d *requestDecoder) field(key []byte) (p *problem) {
	r := &d.request
	switch string(key) {
	case "type":
		if p = d.seen.add(hasType); p == nil {
			p = d.requestType()
		}
	case "id":
		if p = d.seen.add(hasID); p == nil {
			r.ID, p = d.identifier()
		}
	case "job_id":
		if p = d.seen.add(hasJobID); p == nil {
			r.JobID, p = d.identifier()
		}
	case "job":
		if p = d.seen.add(hasJob); p == nil {
			r.Jobs = append(r.Jobs, freeslot.Job{})
			p = d.job(&r.Jobs[len(r.Jobs)-1])
		}
	case "jobs":
		if p = d.seen.add(hasJobs); p == nil {
			p = d.jobs()
		}
	default:
		p = unknownField()
	}
	return p
}

func (d *requestDecoder) requestType() *problem {
	if d.peek() != '"' {
		return d.wrongType("a string")
	}
	token, p := d.token()
	if p != nil {
		return p
	}
	for _, t := range RequestTypes() {
		if string(token) == string(t) {
			d.request.Type = t
			return nil
		}
	}
	return &problem{text: "is " + strconv.Quote(string(clip(token))) + ", expected submit, cancel, attach or ping"}
}

func (d *requestDecoder) identifier() (string, *problem) {
	id, p := d.string()
	if p == nil && !validID(id) {
		p = &problem{text: idRule}
	}
	return id, p
}

const idRule = "is not an id, expected 1 to 64 printable ASCII characters"

func validID(id string) bool {
	if len(id) == 0 || len(id) > MaxIDLength {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7e {
			return false
		}
	}
	return true
}

func (d *requestDecoder) jobs() *problem {
	if p := d.openArray(); p != nil {
		return p
	}
	d.request.Batch = true
	for i := 0; ; i++ {
		ok, p := d.element(i == 0)
		if p != nil {
			return p
		}
		if !ok {
			break
		}
		// Checked before the job is decoded: "{}," costs a client three bytes and a
		// replica a whole Job.
		if i == d.limits.MaxBatch {
			return &problem{text: "has more than " + strconv.Itoa(d.limits.MaxBatch) + " entries, the limit of one batch"}
		}
		d.request.Jobs = append(d.request.Jobs, freeslot.Job{})
		if p := d.job(&d.request.Jobs[len(d.request.Jobs)-1]); p != nil {
			return p.at(i)
		}
	}
	if len(d.request.Jobs) == 0 {
		return &problem{text: "is empty, expected 1 to " + strconv.Itoa(d.limits.MaxBatch) + " jobs"}
	}
	return nil
}

// check holds the fields that were there against those that the type takes.
func (d *requestDecoder) check() *problem {
	const always = hasType | hasID
	var want fields
	switch d.request.Type {
	case TypeSubmit:
		if want = always | hasJob; d.seen&hasJobs != 0 {
			want = always | hasJobs
		}
	case TypeCancel, TypeAttach:
		want = always | hasJobID
	case TypePing:
		want = always
	default:
		return missing("type")
	}
	for bit, name := range requestFields {
		switch bit := fields(1) << bit; {
		case want&bit != 0 && d.seen&bit == 0:
			return missing(name)
		case want&bit == 0 && d.seen&bit != 0:
			return &problem{field: name, text: "does not belong here"}
		}
	}
	return nil
}

// requestFields are the names of the bits, in their order.
var requestFields = [...]string{"type", "id", "job", "jobs", "job_id"}

func missing(name string) *problem { return &problem{field: name, text: "is missing"} }

func unknownField() *problem { return &problem{text: "is not a known field"} }

// fieldName makes a key fit for an error message.
func fieldName(key []byte) string { return string(bytes.ToValidUTF8(clip(key), nil)) }

// findID looks for the id of a frame that was refused, so that the client knows
// which of its requests the error is about.
func findID(frame []byte) string {
	c := cursor{data: frame}
	if c.openObject() != nil {
		return ""
	}
	for first := true; ; first = false {
		key, ok, p := c.member(first)
		if p != nil || !ok {
			return ""
		}
		if string(key) == "id" {
			id, p := c.string()
			if p != nil || !validID(id) {
				return ""
			}
			return id
		}
		if _, p := c.value(); p != nil {
			return ""
		}
	}
}
