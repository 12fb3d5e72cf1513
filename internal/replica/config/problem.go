package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	// Path is the key concerned ("redis.url", "tokens[2].role"); empty if no single key is.
	Path string
	// Message continues a sentence that began with the path. It never holds a secret.
	Message string
	// Source is the origin of the value (a file, a variable, a flag); empty for a default.
	Source string
}

func (p Problem) String() string {
	s := p.Message
	if p.Path != "" {
		s = p.Path + " " + s
	}
	if p.Source != "" {
		s += " (from " + p.Source + ")"
	}
	return s
}

// Problems holds everything wrong with a configuration. It is the error that [Load] returns. The
// zero value is empty and ready for use.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Addf records a problem with the value at path. The message continues a sentence that begins with
// the path: "is 0, expected 1 to 100".
func (p *Problems) Addf(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Add records err, unless it is nil, as a problem with the value at path.
func (p *Problems) Add(path string, err error) {
	if err != nil {
		*p = append(*p, Problem{Path: path, Message: strings.TrimPrefix(err.Error(), path+" ")})
	}
}

// Field records bad as a problem with the value at path, which may differ from bad.Field.
func (p *Problems) Field(path string, bad freeslot.FieldError) {
	p.Addf(path, "%s", strings.TrimPrefix(strings.TrimPrefix(bad.Message, bad.Field), " "))
}

// Coded records err, if it is a *freeslot.Error, as a problem with the value at path.
func (p *Problems) Coded(path string, err error) {
	if e, ok := errors.AsType[*freeslot.Error](err); ok {
		p.Field(path, freeslot.FieldError{Field: e.Field, Message: e.Message})
	}
}

// Name records a problem unless freeslot accepts the name.
func (p *Problems) Name(path, name string) { p.Coded(path, freeslot.ValidateName(path, name)) }

// Listen records a problem unless address is a host and a port to listen on, such as example. It
// returns the host; ok is false if the address has none.
func (p *Problems) Listen(path, address, example string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.Addf(path, "is %q, expected host:port such as %s", address, example)
		return "", false
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		p.Addf(path, "has the port %q, expected 0 to 65535 (0 takes any free one)", port)
	}
	return host, true
}

// OneOf records a problem unless value is one of allowed.
func (p *Problems) OneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.Addf(path, "is %q, expected %s", value, orList(allowed))
	}
}

// Between records a problem unless low <= value <= high.
func (p *Problems) Between(path string, value, low, high int) {
	if value < low || value > high {
		p.Addf(path, "is %d, expected %d to %d", value, low, high)
	}
}

// DurationBetween records a problem unless low <= value <= high.
func (p *Problems) DurationBetween(path string, value, low, high time.Duration) {
	if value < low || value > high {
		p.Addf(path, "is %s, expected %s to %s", FormatDuration(value), FormatDuration(low), FormatDuration(high))
	}
}

// Once records a problem for each value that occurs earlier in the list. value(i) belongs to the
// field of the i-th entry of the list at path. Empty values do not count.
func (p *Problems) Once(path, field string, count int, value func(i int) string) {
	first := make(map[string]int, count)
	for i := range count {
		v := value(i)
		if j, ok := first[v]; ok && v != "" {
			p.Addf(element(path, i)+"."+field, "is %q like that of %s, expected each %s once", v, element(path, j), field)
		} else {
			first[v] = i
		}
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// Headers records a problem for each HTTP header that cannot be sent, or whose canonical name is
// reserved.
func (p *Problems) Headers(path string, headers map[string]string, reserved ...string) {
	for name, value := range headers {
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") ||
			slices.Contains(reserved, http.CanonicalHeaderKey(name)) {
			p.Addf(path, "has %q, which cannot be sent as a header", name)
		}
	}
}

func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
}

// Has reports whether there is a problem with the value at path or within it. A further check would
// only repeat it.
func (p *Problems) Has(path string) bool {
	return slices.ContainsFunc(*p, func(x Problem) bool { return x.within(path) })
}

// within returns the problems for which Has is true.
func (p Problems) within(path string) (found Problems) {
	for _, x := range p {
		if x.within(path) {
			found = append(found, x)
		}
	}
	return found
}

func (p Problem) within(path string) bool {
	rest, ok := strings.CutPrefix(p.Path, path)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// FormatDuration is d.String without trailing zero units: "1h", not "1h0m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func orList(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " or " + items[len(items)-1]
}
