package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// Bounds of a Registration.
const (
	MaxIDBytes            = 128
	MaxHostBytes          = 253
	MaxWeight             = 10_000
	MinHeartbeatInterval  = 100 * time.Millisecond
	MaxHeartbeatInterval  = 5 * time.Minute
	MaxMetadata           = 64
	MaxMetadataKeyBytes   = 64
	MaxMetadataValueBytes = 1024
	MinCheckInterval      = time.Second
	MaxCheckInterval      = 5 * time.Minute
	MaxCheckPathBytes     = 1024
	MaxCheckResults       = 100
)

// Defaults of a Registration and its Check.
const (
	DefaultProtocol          = "TCP"
	DefaultHeartbeatInterval = 10 * time.Second
	DefaultCheckInterval     = 5 * time.Second
	DefaultCheckTimeout      = 2 * time.Second
	DefaultRise              = 2
	DefaultFall              = 3
)

// WithDefaults returns r with its defaults filled in, except Host, which the connection to Redis
// decides. It shares nothing with r.
func (r Registration) WithDefaults() Registration {
	if r.Protocol == "" {
		r.Protocol = DefaultProtocol
	}
	weight := 1.0
	if r.Weight != nil {
		weight = *r.Weight
	}
	r.Weight = &weight
	if r.Interval == 0 {
		r.Interval = DefaultHeartbeatInterval
	}
	if r.ID == "" && r.Host != "" && r.Port != 0 {
		r.ID = net.JoinHostPort(r.Host, strconv.Itoa(r.Port))
	}
	r.Metadata = maps.Clone(r.Metadata)
	if r.Check != nil {
		c := *r.Check
		if c.Interval == 0 {
			c.Interval = Milliseconds(DefaultCheckInterval)
		}
		if c.Timeout == 0 {
			c.Timeout = min(Milliseconds(DefaultCheckTimeout), c.Interval)
		}
		if c.Rise == 0 {
			c.Rise = DefaultRise
		}
		if c.Fall == 0 {
			c.Fall = DefaultFall
		}
		r.Check = &c
	}
	return r
}

// Validate returns an error that names every bad field. Fill in the defaults first. It does not
// refuse loopback, which depends on where Redis is.
func (r Registration) Validate() error {
	var found freeslot.FieldErrors
	r.validate(&found)
	return found.Err()
}

func (r Registration) validate(found *freeslot.FieldErrors) {
	found.Add(freeslot.ValidateName("service", r.Service))
	if why := checkID(r.ID); why != "" {
		found.Addf("id", "%s", why)
	}
	if why := checkHost(r.Host); why != "" {
		found.Addf("host", "%s", why)
	}
	if r.Port < 1 || r.Port > 65535 {
		found.Addf("port", "is %d, expected 1 to 65535", r.Port)
	}
	found.Add(freeslot.ValidateName("protocol", r.Protocol))
	if why := CheckWeight(r.Weight); why != "" {
		found.Addf("weight", "%s", why)
	}
	if r.Interval < MinHeartbeatInterval || r.Interval > MaxHeartbeatInterval {
		found.Addf("interval", "is %s, expected %s to %s", r.Interval, MinHeartbeatInterval, MaxHeartbeatInterval)
	}
	if r.Check != nil {
		r.Check.validate(found)
	}
	if len(r.Metadata) > MaxMetadata {
		found.Addf("metadata", "has %d labels, expected at most %d", len(r.Metadata), MaxMetadata)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		field, value := fmt.Sprintf("metadata[%q]", key), r.Metadata[key]
		switch {
		case key == "" || len(key) > MaxMetadataKeyBytes:
			found.Addf(field, "has a key of %d bytes, expected 1 to %d", len(key), MaxMetadataKeyBytes)
		case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
			found.Addf(field, "has a key that is no UTF-8 or has control characters")
		}
		switch {
		case len(value) > MaxMetadataValueBytes:
			found.Addf(field, "has %d bytes, expected at most %d", len(value), MaxMetadataValueBytes)
		case !utf8.ValidString(value):
			found.Addf(field, "is no UTF-8")
		}
	}
}

// CheckWeight returns what is wrong with the weight of an instance, or "". nil is right.
func CheckWeight(weight *float64) string {
	if weight == nil || *weight > 0 && *weight <= MaxWeight { // NaN is neither
		return ""
	}
	return fmt.Sprintf("is %v, expected more than 0 and at most %d; for none, set enabled to false", *weight, MaxWeight)
}

// checkID returns what is wrong with the id of an instance, or "".
func checkID(id string) string {
	switch {
	case id == "" || len(id) > MaxIDBytes:
		return fmt.Sprintf("has %d bytes, expected 1 to %d", len(id), MaxIDBytes)
	case id == "heartbeats":
		return "is heartbeats, which is the name of a key of the registry"
	}
	for _, c := range id {
		if c <= ' ' || c > '~' || c == '{' || c == '}' {
			return fmt.Sprintf("has %q, expected printable ASCII characters without spaces and braces", c)
		}
	}
	return ""
}

// checkHost returns what is wrong with a host, or "".
func checkHost(host string) string {
	if host == "" || len(host) > MaxHostBytes {
		return fmt.Sprintf("has %d bytes, expected 1 to %d", len(host), MaxHostBytes)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() || addr.IsMulticast() {
			return fmt.Sprintf("is %s, expected an address that clients can connect to", host)
		}
		return ""
	}
	for _, c := range host {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' {
			return fmt.Sprintf("has %q, expected a name or an IP address", c)
		}
	}
	return ""
}

func (c *Check) validate(found *freeslot.FieldErrors) {
	found.Add(freeslot.ValidateName("check.kind", c.Kind))
	if len(c.Path) > MaxCheckPathBytes || !utf8.ValidString(c.Path) || strings.ContainsFunc(c.Path, unicode.IsControl) {
		found.Addf("check.path", "has more than %d bytes, is no UTF-8 or has control characters", MaxCheckPathBytes)
	}
	switch c.Kind {
	case "http", "https", "websocket":
		if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
			found.Addf("check.path", "is %q, expected one that begins with /", c.Path)
		}
	}
	interval, timeout := time.Duration(c.Interval), time.Duration(c.Timeout)
	if interval < MinCheckInterval || interval > MaxCheckInterval {
		found.Addf("check.interval", "is %s, expected %s to %s", interval, MinCheckInterval, MaxCheckInterval)
	}
	if timeout < time.Millisecond || timeout > interval {
		found.Addf("check.timeout", "is %s, expected 1ms to the interval of %s", timeout, interval)
	}
	for field, n := range map[string]int{"check.rise": c.Rise, "check.fall": c.Fall} {
		if n < 1 || n > MaxCheckResults {
			found.Addf(field, "is %d, expected 1 to %d", n, MaxCheckResults)
		}
	}
}

// fields returns what a provider says of a valid instance with its defaults, in the form that
// register.lua takes: names and values, first host, port, interval and content. content is a hash
// of the others.
func (r Registration) fields() (fields []string, content string) {
	kind, interval := "ephemeral", milliseconds(r.Interval)
	if r.Persistent {
		kind, interval = "persistent", "0"
	}
	fields = []string{
		"host", r.Host, "port", strconv.Itoa(r.Port), "interval", interval, "content", "",
		"protocol", r.Protocol, "healthy", strconv.FormatBool(!r.Unhealthy), "weight",
		strconv.FormatFloat(*r.Weight, 'g', -1, 64),
		"enabled", strconv.FormatBool(!r.Disabled), "draining", strconv.FormatBool(r.Draining), "kind", kind,
	}
	if r.Check != nil {
		raw, err := json.Marshal(r.Check)
		if err != nil {
			panic("registry: a check is no JSON: " + err.Error())
		}
		fields = append(fields, "check", string(raw))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		fields = append(fields, "metadata_"+key, r.Metadata[key])
	}
	hash := sha256.New()
	for _, f := range fields {
		fmt.Fprintf(hash, "%d:%s", len(f), f)
	}
	content = hex.EncodeToString(hash.Sum(nil)[:8])
	fields[7] = content
	return fields, content
}
