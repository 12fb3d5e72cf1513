package wire

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/freeslot/freeslot"
)

// RequestType is the kind of a request.
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
	// ID is the client's name for the request. Every answer carries it.
	ID string
	// Jobs is set for TypeSubmit: one job, unless Batch is set.
	Jobs []freeslot.Job
	// Batch is true if the client sent "jobs". Answers then carry an index.
	Batch bool
	// JobID is set for TypeCancel and TypeAttach.
	JobID string
}

// Limits bounds the requests of clients.
type Limits struct {
	// MaxPayloadBytes is the largest payload of one job.
	MaxPayloadBytes int
	// MaxBatch is the largest number of jobs in one frame.
	MaxBatch int
	// MaxFrameBytes is the largest frame. The reader of frames enforces it.
	MaxFrameBytes int
}

// Path returns the name of job i of the request in errors: "job" or "jobs[3]".
func (r *Request) Path(i int) string {
	if r.Batch {
		return "jobs[" + strconv.Itoa(i) + "]"
	}
	return "job"
}

// Index returns the index in answers for job i: i in a batch, otherwise NoIndex.
func (r *Request) Index(i int) int {
	if r.Batch {
		return i
	}
	return NoIndex
}

// CheckJob checks job i of the request: the size of its payload, and everything that
// freeslot.Job.Validate checks.
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

// ErrNotUTF8 is returned by DecodeRequest, unwrapped, for a frame that no WebSocket client may send
// as text. RFC 6455 demands that the connection ends with 1007.
var ErrNotUTF8 = &freeslot.Error{Code: freeslot.CodeInvalidArgument, Message: "frame " + notUTF8}

// request is a frame in JSON. Pointers distinguish absent from empty.
type request struct {
	Type  RequestType   `json:"type"`
	ID    *string       `json:"id"`
	Job   *freeslot.Job `json:"job"`
	Jobs  batch         `json:"jobs"`
	JobID *string       `json:"job_id"`
}

// batch holds the jobs of a request that submits several. given is true even if there are none.
type batch struct {
	jobs  []freeslot.Job
	given bool
	limit int
}

func decodeBatch(d *jsontext.Decoder, b *batch) error {
	b.given = true
	return decodeList(d, &b.jobs, b.limit, "entries, the limit of one batch")
}

// DecodeRequest decodes one frame. It copies what it keeps, so the caller may reuse the frame. It
// does not check the jobs: see CheckJob.
//
// A refused frame is refused as a whole. The request then has only the ID, if it could be found.
func (l Limits) DecodeRequest(frame []byte) (Request, *freeslot.Error) {
	if !utf8.Valid(frame) {
		return Request{}, ErrNotUTF8
	}
	in := request{Jobs: batch{limit: l.MaxBatch}}
	if err := unmarshalStrict(frame, &in); err != nil {
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

// check compares the fields that are present with the fields that the type needs.
func (r *request) check() *freeslot.Error {
	submit, named := r.Type == TypeSubmit, r.Type == TypeCancel || r.Type == TypeAttach
	switch {
	case r.Type == "":
		return freeslot.Invalid("type", isMissing)
	case !slices.Contains(RequestTypes(), r.Type):
		return freeslot.Invalid("type", "is %q, expected submit, cancel, attach or ping", clip(string(r.Type)))
	case r.ID == nil:
		return freeslot.Invalid("id", isMissing)
	case !validID(*r.ID):
		return freeslot.Invalid("id", idRule)
	case submit && r.Job == nil && !r.Jobs.given:
		return freeslot.Invalid("job", isMissing)
	case r.Job != nil && (!submit || r.Jobs.given):
		return freeslot.Invalid("job", isUnwanted)
	case r.Jobs.given && !submit:
		return freeslot.Invalid("jobs", isUnwanted)
	case r.Jobs.given && len(r.Jobs.jobs) == 0:
		return freeslot.Invalid("jobs", "is empty, expected 1 to %d jobs", r.Jobs.limit)
	case named && r.JobID == nil:
		return freeslot.Invalid("job_id", isMissing)
	case !named && r.JobID != nil:
		return freeslot.Invalid("job_id", isUnwanted)
	case named && !validID(*r.JobID):
		return freeslot.Invalid("job_id", idRule)
	default:
		return nil
	}
}

func validID(id string) bool {
	return id != "" && len(id) <= MaxIDLength &&
		!strings.ContainsFunc(id, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// findID looks for the id of a refused frame, so that the client knows which request the error is
// about.
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

// sentRequest has the fields of all requests. A required field is never empty.
type sentRequest struct {
	Type  RequestType    `json:"type"`
	ID    string         `json:"id"`
	Job   *freeslot.Job  `json:"job,omitempty"`
	Jobs  []freeslot.Job `json:"jobs,omitempty"`
	JobID string         `json:"job_id,omitempty"`
}

// AppendSubmit appends the frame of a request. So do AppendSubmitBatch, AppendCancel, AppendAttach
// and AppendPing. Payloads must be valid JSON.
func AppendSubmit(dst []byte, id string, job *freeslot.Job) []byte {
	return appendJSON(dst, &sentRequest{Type: TypeSubmit, ID: id, Job: job})
}

// AppendSubmitBatch appends the submit of several jobs, at least one; see AppendSubmit.
func AppendSubmitBatch(dst []byte, id string, jobs []freeslot.Job) []byte {
	return appendJSON(dst, &sentRequest{Type: TypeSubmit, ID: id, Jobs: jobs})
}

// AppendCancel appends a cancel; see AppendSubmit.
func AppendCancel(dst []byte, id, jobID string) []byte {
	return appendJSON(dst, &sentRequest{Type: TypeCancel, ID: id, JobID: jobID})
}

// AppendAttach appends an attach; see AppendSubmit.
func AppendAttach(dst []byte, id, jobID string) []byte {
	return appendJSON(dst, &sentRequest{Type: TypeAttach, ID: id, JobID: jobID})
}

// AppendPing appends a ping; see AppendSubmit.
func AppendPing(dst []byte, id string) []byte {
	return appendJSON(dst, &sentRequest{Type: TypePing, ID: id})
}
