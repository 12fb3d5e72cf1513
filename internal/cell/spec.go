package cell

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/jsonscan"
)

// How json.Marshal begins a job: the payload, which is most of it, is copied and not read again byte by byte.
const (
	specService = `{"service":`
	specPayload = `,"payload":`
)

// encodeSpec is json.Marshal of the job, byte for byte.
func encodeSpec(job *freeslot.Job) ([]byte, error) {
	end, form := jsonscan.Value(job.Payload)
	if form != jsonscan.Compact || end != len(job.Payload) {
		return json.Marshal(job)
	}
	rest := []byte("}")
	if !plainJob(job) {
		without, err := *job, error(nil)
		without.Service, without.Payload = "", nil
		if rest, err = json.Marshal(&without); err != nil {
			return nil, err
		}
		rest = rest[len(specService)+len(`""`):]
	}
	spec := make([]byte, 0, len(specService)+len(job.Service)+len(`""`)+len(specPayload)+len(job.Payload)+len(rest))
	spec = append(append(append(append(spec, specService...), '"'), job.Service...), '"')
	if !literalText(spec[len(specService):]) {
		return json.Marshal(job)
	}
	spec = append(append(spec, specPayload...), job.Payload...)
	return append(spec, rest...), nil
}

// literalText reports whether text is a string in JSON in which all characters stand for themselves.
func literalText(text []byte) bool {
	end, form := jsonscan.Value(text)
	return form == jsonscan.Compact && end == len(text) && text[0] == '"' && bytes.IndexByte(text, '\\') < 0
}

// specOthers are the fields of a job besides its service and its payload.
var specOthers = func() (indexes []int) {
	for i, field := range reflect.VisibleFields(reflect.TypeFor[freeslot.Job]()) {
		if field.Name != "Service" && field.Name != "Payload" {
			indexes = append(indexes, i)
		}
	}
	return indexes
}()

// plainJob reports whether the job has nothing but a service and a payload.
func plainJob(job *freeslot.Job) bool {
	v := reflect.ValueOf(job).Elem()
	for _, i := range specOthers {
		if !v.Field(i).IsZero() {
			return false
		}
	}
	return true
}

// decodeSpec is json.Unmarshal of a job, whose payload may be a part of spec afterwards.
func decodeSpec(spec []byte, job *freeslot.Job) error {
	rest, ok := bytes.CutPrefix(spec, []byte(specService))
	end, form := jsonscan.Value(rest)
	if !ok || form == jsonscan.Unsure || !literalText(rest[:end]) {
		return json.Unmarshal(spec, job)
	}
	service, rest := string(rest[1:end-1]), rest[end:]
	rest, ok = bytes.CutPrefix(rest, []byte(specPayload))
	end, form = jsonscan.Value(rest)
	if !ok || form == jsonscan.Unsure {
		return json.Unmarshal(spec, job)
	}
	job.Service, job.Payload, rest = service, rest[:end:end], rest[end:]
	switch {
	case string(rest) == "}":
		return nil
	case len(rest) > 1 && rest[0] == ',' && rest[1] == '"':
		return json.Unmarshal(append([]byte{'{'}, rest[1:]...), job)
	default:
		return json.Unmarshal(spec, job)
	}
}
