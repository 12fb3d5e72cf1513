package freeslot

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// DecodeStrict decodes exactly one JSON value into v and refuses unknown fields and trailing data.
// Errors are [*Error]s with code [CodeInvalidArgument]. They name the bad field, or path where the
// value as a whole is wrong.
func DecodeStrict(path string, data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return undecoded(path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Invalid(path, "is followed by further data, expected one JSON value")
	}
	return nil
}

// undecoded turns an error of encoding/json into the words that the wire decoder uses too.
func undecoded(path string, err error) error {
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if name, err := strconv.Unquote(field); err == nil {
			return Invalid(name, "is not a known field")
		}
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return &Error{
			Code: CodeInvalidArgument, Field: path, Message: path + ": " + strings.TrimPrefix(err.Error(), "json: "),
		}
	}
	if wrong.Field != "" {
		path = wrong.Field
	}
	return Invalid(path, "is %s, expected %s", found(wrong.Value), expected(wrong.Type))
}

// found names the JSON value that was there. encoding/json gives its type, or "number" and the
// number itself.
func found(value string) string {
	kind, number, _ := strings.Cut(value, " ")
	switch {
	case number != "":
		return number
	case kind == "array" || kind == "object":
		return "an " + kind
	case kind == "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}

// expected names the JSON values that a Go type takes.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "an integer in range"
	}
}
