package freeslot

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxNameLength is the longest node, pool, tenant, service or label name, in bytes.
const MaxNameLength = 64

// MaxLabelValueLength is the longest label value, in bytes.
const MaxLabelValueLength = 128

// nameRule is quoted in every refusal, so that the reader need not look it up.
const nameRule = "1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit"

// ValidateName checks an identifier that becomes part of a Redis key or an
// event: node, pool, tenant, service and label names. The alphabet leaves out
// ':' and braces (key separators, hash tags) and all white space (the event
// codec's separator). The error is an [*Error] with code [CodeInvalidArgument]
// that names field.
func ValidateName(field, name string) error {
	if len(name) == 0 || len(name) > MaxNameLength {
		return Invalid(field, "is %d characters long, expected %s", len(name), nameRule)
	}
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if alnum || i > 0 && (c == '.' || c == '_' || c == '-') {
			continue
		}
		return Invalid(field, "has %q at position %d, expected %s", rune(c), i, nameRule)
	}
	return nil
}

// MaxEndpointLength is the longest endpoint of a service, in bytes.
const MaxEndpointLength = 255

// endpointRule is quoted in every refusal of an endpoint.
const endpointRule = "a URL such as http://10.0.0.7:8000/run, or host:port, without a user, of at most 255 characters"

// ValidateEndpoint checks where a service can be reached: a URL or host:port, without
// credentials, because whoever sees the node sees it. The error is an [*Error] with code
// [CodeInvalidArgument] that names field, and does not quote the endpoint.
func ValidateEndpoint(field, endpoint string) error {
	if len(endpoint) <= MaxEndpointLength && !strings.ContainsFunc(endpoint, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' }) {
		if u, err := url.Parse(endpoint); err == nil && u.Scheme != "" && u.Host != "" {
			return nil
		}
		if host, port, err := net.SplitHostPort(endpoint); err == nil && host != "" && port != "" && !strings.ContainsAny(endpoint, "/?#") {
			return nil
		}
	}
	return Invalid(field, "is not an endpoint, expected %s", endpointRule)
}

func validateLabels(field string, labels map[string]string) error {
	// Sorted, so that the same labels are always refused for the same one.
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := ValidateName(field+" name", name); err != nil {
			return err
		}
		if !validLabelValue(labels[name]) {
			return Invalid(field+"."+name, "is not a label value, expected at most %d bytes without control characters", MaxLabelValueLength)
		}
	}
	return nil
}

func validLabelValue(value string) bool {
	return len(value) <= MaxLabelValueLength && !strings.ContainsFunc(value, isControl)
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func isControl(r rune) bool { return r < 0x20 || r == 0x7f }
