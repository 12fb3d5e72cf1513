package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
	job, path := &r.Jobs[i], r.Path(i)
	err := CheckPayload(path, job, l.MaxPayloadBytes)
	if err == nil {
		err = job.Validate(path)
	}
	if err != nil {
		return AsError(err)
	}
	return nil
}

const notUTF8 = "is not valid UTF-8"

// ErrNotUTF8 is what DecodeRequest returns, itself, for a frame that no
// WebSocket client may send as text. RFC 6455 has the connection end with 1007.
var ErrNotUTF8 = invalid("", notUTF8)

// request is a frame as it stands in JSON. Pointers tell what is absent from what is empty.
type request struct {
	Type  RequestType   `json:"type"`
	ID    *string       `json:"id"`
	Job   *freeslot.Job `json:"job"`
	Jobs  batch         `json:"jobs"`
	JobID *string       `json:"job_id"`
}

// batch is the jobs of a request that submits several; given is true even if there are none.
type batch struct {
	jobs  []freeslot.Job
	given bool
	limit int
}

func decodeBatch(d *jsontext.Decoder, b *batch) error {
	b.given = true
	return decodeList(d, &b.jobs, b.limit, "entries, the limit of one batch")
}

// DecodeRequest decodes one frame. It copies what it keeps, so the caller may
// reuse the frame. Jobs are decoded, not checked: see CheckJob.
//
// A frame that is refused is refused as a whole; the request then holds nothing
// but the ID, and that only where it could be made out.
func (l Limits) DecodeRequest(frame []byte) (Request, *freeslot.Error) {
	if !utf8.Valid(frame) {
		return Request{}, ErrNotUTF8
	}
	in := request{Jobs: batch{limit: l.MaxBatch}}
	if err := json.Unmarshal(frame, &in, strict); err != nil {
		return Request{ID: findID(frame)}, refuse("", err)
	}
	if refused := in.check(); refused != nil {
		return Request{ID: findID(frame)}, refused
	}
	r := Request{Type: in.Type, ID: *in.ID, Batch: in.Jobs.given, Jobs: in.Jobs.jobs}
	if in.Job != nil {
		r.Jobs = []freeslot.Job{*in.Job}
	}
	if in.JobID != nil {
		r.JobID = *in.JobID
	}
	return r, nil
}

const (
	isMissing  = "is missing"
	isUnwanted = "does not belong here"
	idRule     = "is not an id, expected 1 to 64 printable ASCII characters"
)

// check holds the fields that were there against those that the type takes.
func (r *request) check() *freeslot.Error {
	submit, named := r.Type == TypeSubmit, r.Type == TypeCancel || r.Type == TypeAttach
	switch {
	case r.Type == "":
		return invalid("type", isMissing)
	case !slices.Contains(RequestTypes(), r.Type):
		return invalid("type", "is "+strconv.Quote(clip(string(r.Type)))+", expected submit, cancel, attach or ping")
	case r.ID == nil:
		return invalid("id", isMissing)
	case !validID(*r.ID):
		return invalid("id", idRule)
	case submit && r.Job == nil && !r.Jobs.given:
		return invalid("job", isMissing)
	case r.Job != nil && (!submit || r.Jobs.given):
		return invalid("job", isUnwanted)
	case r.Jobs.given && !submit:
		return invalid("jobs", isUnwanted)
	case r.Jobs.given && len(r.Jobs.jobs) == 0:
		return invalid("jobs", fmt.Sprintf("is empty, expected 1 to %d jobs", r.Jobs.limit))
	case named && r.JobID == nil:
		return invalid("job_id", isMissing)
	case !named && r.JobID != nil:
		return invalid("job_id", isUnwanted)
	case named && !validID(*r.JobID):
		return invalid("job_id", idRule)
	default:
		return nil
	}
}

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

// findID looks for the id of a frame that was refused, so that the client knows
// which of its requests the error is about.
func findID(frame []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(frame), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return ""
	}
	for d.PeekKind() == '"' {
		if name, err := d.ReadToken(); err != nil {
			return ""
		} else if name.String() != "id" {
			if d.SkipValue() != nil {
				return ""
			}
			continue
		}
		if id, err := d.ReadToken(); err == nil && id.Kind() == '"' && validID(id.String()) {
			return id.String()
		}
		return ""
	}
	return ""
}

// AppendSubmit appends the frame of a request, and so do AppendSubmitBatch,
// AppendCancel, AppendAttach and AppendPing. Payloads must be valid JSON.
func AppendSubmit(dst []byte, id string, job *freeslot.Job) []byte {
	return appendJSON(dst, &struct {
		Type RequestType   `json:"type"`
		ID   string        `json:"id"`
		Job  *freeslot.Job `json:"job"`
	}{TypeSubmit, id, job})
}

// AppendSubmitBatch appends the submit of several jobs; see AppendSubmit.
func AppendSubmitBatch(dst []byte, id string, jobs []freeslot.Job) []byte {
	return appendJSON(dst, &struct {
		Type RequestType    `json:"type"`
		ID   string         `json:"id"`
		Jobs []freeslot.Job `json:"jobs"`
	}{TypeSubmit, id, jobs})
}

// jobRequest is a request about one job, or about none.
type jobRequest struct {
	Type  RequestType `json:"type"`
	ID    string      `json:"id"`
	JobID string      `json:"job_id,omitempty"`
}

// AppendCancel appends a cancel; see AppendSubmit.
func AppendCancel(dst []byte, id, jobID string) []byte {
	return appendJSON(dst, &jobRequest{TypeCancel, id, jobID})
}

// AppendAttach appends an attach; see AppendSubmit.
func AppendAttach(dst []byte, id, jobID string) []byte {
	return appendJSON(dst, &jobRequest{TypeAttach, id, jobID})
}

// AppendPing appends a ping; see AppendSubmit.
func AppendPing(dst []byte, id string) []byte {
	return appendJSON(dst, &jobRequest{Type: TypePing, ID: id})
}
