package freeslot

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// undecoded says what is wrong with the JSON value at path, in the words of a job's decoder
// where it is a field.
func undecoded(path string, err error) error {
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if name, err := strconv.Unquote(field); err == nil {
			return Invalid(name, "is not a known field")
		}
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return &Error{Code: CodeInvalidArgument, Field: path, Message: path + ": " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if wrong.Field != "" {
		path = wrong.Field
	}
	return Invalid(path, "is %s, expected %s", found(wrong.Value), expected(wrong.Type))
}

// found is what there was: a type, or "number" and which one.
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

// expected is how JSON writes values of the type.
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
