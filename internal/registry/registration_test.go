package registry

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/loopback"
)

func TestRegistrationDefaults(t *testing.T) {
	t.Parallel()
	r := Registration{Service: "s", Host: "::1", Port: 80, Check: &Check{Kind: "tcp", Interval: Milliseconds(time.Second)}}.WithDefaults()
	if r.ID != "[::1]:80" || r.Protocol != "TCP" || *r.Weight != 1 || r.Interval != 10*time.Second || time.Duration(r.Check.Timeout) != time.Second ||
		r.Check.Rise != 2 || r.Check.Fall != 3 {
		t.Errorf(`%+v, %+v; want r.ID == "[::1]:80", r.Protocol == "TCP", *r.Weight == 1, r.Interval == 10*time.Second, time.Duration(r.Check.Timeout) == time.Second, r.Check.Rise == 2, r.Check.Fall == 3`, r, r.Check)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// TestRegistrationValidate: all mistakes at once, each field named.
func TestRegistrationValidate(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	err := Registration{
		Service: "a:b", ID: "heartbeats", Host: "0.0.0.0", Port: 70000, Protocol: "a b", Weight: new(math.NaN()), Interval: time.Millisecond,
		Check:    &Check{Kind: "http", Path: "x", Interval: 1, Timeout: -1, Rise: -1, Fall: 101},
		Metadata: map[string]string{"": "x", "long": long, "bad": "\xff", "con\x00trol": "x"},
	}.WithDefaults().Validate()
	var found *freeslot.Error
	if !errors.As(err, &found) || found.Code != freeslot.CodeInvalidArgument {
		t.Fatal(err)
	}
	var fields []string
	for _, e := range found.Errors {
		fields = append(fields, e.Field)
	}
	slices.Sort(fields)
	want := []string{
		"check.fall", "check.interval", "check.path", "check.rise", "check.timeout", "host", "id", "interval",
		`metadata[""]`, `metadata["bad"]`, `metadata["con\x00trol"]`, `metadata["long"]`, "port", "protocol", "service", "weight",
	}
	if !slices.Equal(fields, want) {
		t.Errorf("%q, expected %q", fields, want)
	}
	for _, id := range []string{"a b", "a{b", "é", strings.Repeat("x", 129), "a\n"} {
		if checkID(id) == "" {
			t.Errorf("id %q is taken", id)
		}
	}
	for _, host := range []string{"a b", "a/b", "[::1]", "::", "224.0.0.1", strings.Repeat("x", 254)} {
		if checkHost(host) == "" {
			t.Errorf("host %q is taken", host)
		}
	}
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1"} {
		if !loopback.Is(host) {
			t.Errorf("%q is not on loopback", host)
		}
	}
}

// TestContent: each field of a provider is in the hash of its content.
func TestContent(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for i, change := range []func(*Registration){
		func(*Registration) {}, func(r *Registration) { r.Host = "h" }, func(r *Registration) { r.Port = 1 }, func(r *Registration) { r.Protocol = "HTTP" },
		func(r *Registration) { r.Weight = new(2.0) }, func(r *Registration) { r.Disabled = true }, func(r *Registration) { r.Draining = true },
		func(r *Registration) { r.Unhealthy = true }, func(r *Registration) { r.Persistent = true }, func(r *Registration) { r.Interval = time.Second },
		func(r *Registration) { r.Check = &Check{Kind: "tcp"} }, func(r *Registration) { r.Metadata = map[string]string{"a": "bc"} },
		func(r *Registration) { r.Metadata = map[string]string{"ab": "c"} },
	} {
		fields, content := registration("s", "a", change).fields()
		if seen[content] || len(content) != 16 || pairs(fields)["content"] != content {
			t.Errorf("change %d: content %s in %v", i, content, slices.Sorted(maps.Keys(seen)))
		}
		seen[content] = true
	}
}

// TestWholeCharacters: a refusal names a character, not one of its bytes.
func TestWholeCharacters(t *testing.T) {
	t.Parallel()
	r := Registration{Service: "dienst-für-alle", ID: "schlüssel", Host: "host-日本", Port: 80}.WithDefaults()
	text := fmt.Sprint(r.Validate())
	for _, want := range []string{`service has 'ü' at position 8`, `id has 'ü'`, `host has '日'`} {
		if !strings.Contains(errorsOf(r.Validate()), want) {
			t.Errorf("%s, expected %s", text, want)
		}
	}
}

// errorsOf are all messages of an error.
func errorsOf(err error) (out string) {
	if e, ok := errors.AsType[*freeslot.Error](err); ok {
		for _, one := range e.Errors {
			out += one.Message + "\n"
		}
	}
	return out
}

// TestNoWeight: 0 is refused as an operator's is, and is not the default.
func TestNoWeight(t *testing.T) {
	t.Parallel()
	for _, weight := range []float64{0, -1, 10_001, math.Inf(1)} {
		r := Registration{Service: "s", ID: "a", Host: "h", Port: 80, Weight: &weight}.WithDefaults()
		if err := r.Validate(); err == nil || err.Error() != fmt.Sprintf("invalid_argument: weight is %v, expected more than 0 and at most 10000; for none, set enabled to false", weight) {
			t.Errorf("weight %v: %v, expected a refusal with advice", weight, err)
		}
	}
	given := 3.0
	r := Registration{Weight: &given}.WithDefaults()
	if given = 4; *r.Weight != 3 {
		t.Errorf("the weight is %v, expected a copy of 3", *r.Weight)
	}
}

// TestHolderAddress: an IPv6 address has brackets, and one that does not beat is not waited for.
func TestHolderAddress(t *testing.T) {
	t.Parallel()
	h := &HolderError{Service: "s", ID: "a", Host: "2001:db8::7", Port: 80, Silent: time.Second, Interval: 10 * time.Second}
	for want, change := range map[string]func(){
		"held by [2001:db8::7]:80, last heard of 1s ago; it can be taken over once that is silent for 30s": func() {},
		"held by [2001:db8::7]:80, which sends no heartbeats; it must be removed first":                    func() { h.Interval = 0 },
		"held by another provider at [2001:db8::7]:80":                                                     func() { h.Superseded = true },
	} {
		was := *h
		change()
		if !strings.Contains(h.Error(), want) {
			t.Errorf("%s, expected %s", h, want)
		}
		*h = was
	}
}
