package freeslot

import (
	"bytes"
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxNameLength is the longest node, pool, tenant, service or label name, in bytes.
const MaxNameLength = 64

// MaxLabelValueLength is the longest label value, in bytes.
const MaxLabelValueLength = 128

// MaxEndpointLength is the longest endpoint of a service, in bytes.
const MaxEndpointLength = 255

// ClassIDLength is the length of a class id, in bytes. An id has the digits 0-9 and a-f.
const ClassIDLength = 16

// Every refusal quotes these rules, so that the reader need not look them up.
const (
	nameRule     = "1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
	endpointRule = "a URL such as http://10.0.0.7:8000/run, or host:port, without a user, of at most 255 characters"
)

// ValidateName checks an identifier that becomes part of a Redis key or an event: node, pool,
// tenant, service and label names. It refuses ':' and braces (key separators, hash tags) and all
// white space (the event codec's separator). The error is an [*Error] with code
// [CodeInvalidArgument] that names field.
func ValidateName(field, name string) error {
	for i, c := range name {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return Invalid(field, "has %q at position %d, expected %s", c, i, nameRule)
		}
	}
	if len(name) == 0 || len(name) > MaxNameLength {
		return Invalid(field, "is %d characters long, expected %s", len(name), nameRule)
	}
	return nil
}

// ValidateClassID checks the form of a class id. The error is an [*Error] with code
// [CodeInvalidArgument] that names field.
func ValidateClassID(field, id string) error {
	if len(id) != ClassIDLength || strings.Trim(id, "0123456789abcdef") != "" {
		return Invalid(field, "is %q, expected the id of a class, %d of 0-9 a-f", id, ClassIDLength)
	}
	return nil
}

// ValidateEndpoint checks a service's address: a URL or host:port. It refuses credentials, because
// everyone who can list nodes sees the endpoint. The error is an [*Error] with code
// [CodeInvalidArgument] that names field, and does not quote the endpoint.
func ValidateEndpoint(field, endpoint string) error {
	if len(endpoint) <= MaxEndpointLength &&
		!strings.ContainsFunc(endpoint, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' }) {
		if u, err := url.Parse(endpoint); err == nil && u.Scheme != "" && u.Host != "" {
			return nil
		}
		if host, port, err := net.SplitHostPort(endpoint); err == nil && host != "" && port != "" &&
			!strings.ContainsAny(endpoint, "/?#") {
			return nil
		}
	}
	return Invalid(field, "is not an endpoint, expected %s", endpointRule)
}

// validateOptional accepts an empty name too.
func validateOptional(field, name string) error {
	if name == "" {
		return nil
	}
	return ValidateName(field, name)
}

// validateEach checks the number of entries of a list, then each entry by its index.
func validateEach(field string, count, most int, check func(i int) error) error {
	if count > most {
		return Invalid(field, "has %d entries, expected at most %d", count, most)
	}
	for i := range count {
		if err := check(i); err != nil {
			return err
		}
	}
	return nil
}

func validateNames(field string, names []string, most int) error {
	return validateEach(field, len(names), most, func(i int) error { return ValidateName(field, names[i]) })
}

func validateLabels(field string, labels map[string]string) error {
	names := slices.Sorted(maps.Keys(labels)) // so that the first bad one is always the same
	return validateEach(field, len(names), MaxLabels, func(i int) error {
		name := names[i]
		if err := ValidateName(field+" name", name); err != nil {
			return err
		}
		if !validLabelValue(labels[name]) {
			return Invalid(
				field+"."+name, "is not a label value, expected at most %d bytes without control characters", MaxLabelValueLength,
			)
		}
		return nil
	})
}

func validLabelValue(value string) bool {
	return len(value) <= MaxLabelValueLength && !strings.ContainsFunc(value, isControl)
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }

// maxJSONDepth bounds how deep arrays and objects may nest in a payload, a result or a progress
// value. Decoders stop at 10,000, and messages nest these values a few levels deeper.
const maxJSONDepth = 9000

// ValidateJSON checks raw JSON. Every client gets it as WebSocket text, so it must be UTF-8. An
// empty raw is valid. The error is an [*Error] with code [CodeInvalidArgument] that names field.
func ValidateJSON(field string, raw json.RawMessage) error {
	if nestsDeeper(raw, maxJSONDepth) {
		return Invalid(field, "nests deeper than %d levels of arrays and objects", maxJSONDepth)
	}
	if len(raw) == 0 || utf8.Valid(raw) &&
		jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return nil
	}
	return Invalid(field, "is not valid JSON in UTF-8")
}

// nestsDeeper reports whether JSON nests more than most levels deep.
func nestsDeeper(raw []byte, most int) bool {
	// Nearly all values have too few brackets, and counting those is quick.
	if bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) <= most {
		return false
	}
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == '[' || c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
