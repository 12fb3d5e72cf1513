package cell

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// readParts splits text at single spaces and reads each part into a *string, *int or *int64. Only
// the last part may contain spaces.
func readParts(text string, into ...any) error {
	rest, more := text, true
	for i := range into {
		if !more {
			return fmt.Errorf("%.80q has %d parts, expected %d", text, i, len(into))
		}
		part := rest
		if i < len(into)-1 {
			part, rest, more = strings.Cut(rest, " ")
		}
		var err error
		switch to := into[i].(type) {
		case *string:
			*to = part
		case *int:
			*to, err = strconv.Atoi(part)
		case *int64:
			*to, err = strconv.ParseInt(part, 10, 64)
		default:
			panic(fmt.Sprintf("cell: part of type %T", to))
		}
		if err != nil {
			return fmt.Errorf("part %d of %.80q: %w", i+1, text, err)
		}
	}
	return nil
}

// readClasses reads classes, given as id and definition in turn.
func readClasses(text []string) ([]Class, error) {
	if len(text)%2 != 0 {
		return nil, fmt.Errorf("%d values, expected pairs", len(text))
	}
	var classes []Class
	for i := 0; i < len(text); i += 2 {
		classes = append(classes, Class{ID: text[i], Definition: text[i+1]})
	}
	return classes, nil
}

// wrap adds the name of the operation to *err, unless it is nil.
func wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// rueidisNil returns err, or nil if err says that something does not exist.
func rueidisNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// decodeSpec reads a job in the form that encodeSubmission writes.
func decodeSpec(spec []byte) (*freeslot.Job, error) {
	job := new(freeslot.Job)
	// encoding/json takes more than twice as long. A payload may repeat names.
	if err := json.Unmarshal(spec, job, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return job, nil
}
