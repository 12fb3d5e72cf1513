package registry

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

// head holds what consumers must know of a service. The zero value stands for a service without a
// record.
type head struct {
	Revision int64         `json:"revision"`
	Stamp    string        `json:"stamp"`
	Birth    string        `json:"birth"`
	Longest  time.Duration `json:"longest"`
	// Why says why the service is empty.
	Why string `json:"why,omitempty"`
	// Guard says why nothing is removed; empty without a guard.
	Guard string `json:"-"`
}

// entry is an instance as scripts and events describe it.
type entry struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
	// Fields holds name, value, name, value; empty for an instance that is gone.
	Fields fieldList `json:"fields"`
	// Override is JSON, or empty.
	Override string `json:"override"`
}

// bytes returns about how many bytes of an answer the entry takes.
func (e *entry) bytes() int {
	n := len(e.ID) + len(e.Override)
	for _, f := range e.Fields {
		n += len(f)
	}
	return n
}

// fieldList reads an empty object as an empty list: Lua does not tell them apart.
type fieldList []string

func (f *fieldList) UnmarshalJSON(raw []byte) error {
	if string(raw) == "{}" {
		*f = nil
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(f))
}

// change is a message on service_change:<service>. A change without a revision comes from the
// registry's first version.
type change struct {
	Kind     string  `json:"changeType"`
	At       int64   `json:"timestamp"` // ms
	Revision int64   `json:"revision"`
	Stamp    string  `json:"stamp"`
	Birth    string  `json:"birth"`
	Reason   string  `json:"reason"`
	Entries  []entry `json:"entries"`
}

// measured is a message on service_metrics:<service>.
type measured struct {
	ID      string          `json:"id"`
	Metrics json.RawMessage `json:"metrics"`
}

// readHead reads {revision, stamp, birth, longest, why, guard}.
func readHead(v rueidis.RedisMessage) (h head, err error) {
	texts, err := v.AsStrSlice()
	if err != nil {
		return h, err
	}
	if len(texts) != 6 {
		return h, errors.New("a head has not six parts")
	}
	if h.Revision, err = strconv.ParseInt(texts[0], 10, 64); err != nil {
		return h, err
	}
	longest, _ := strconv.ParseInt(texts[3], 10, 64)
	h.Stamp, h.Birth, h.Why, h.Guard = texts[1], texts[2], texts[4], guardText(texts[5])
	h.Longest = time.Duration(longest) * time.Millisecond
	return h, nil
}

// guardEnd matches the end of a guard as cleanup.lua notes it: Redis writes no dates.
var guardEnd = regexp.MustCompile(`(\d+) \(ms since 1970\)`)

// guardText returns the note of a guard, with its end as a date.
func guardText(note string) string {
	return guardEnd.ReplaceAllStringFunc(note, func(end string) string {
		number, _, _ := strings.Cut(end, " ")
		ms, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return end
		}
		return time.UnixMilli(ms).UTC().Format(time.RFC3339)
	})
}

// readEntry reads {id, revision, fields, override}.
func readEntry(v rueidis.RedisMessage) (e entry, err error) {
	parts, err := v.ToArray()
	if err != nil {
		return e, err
	}
	r := script.Reply{Values: parts}
	e.ID, e.Revision = r.Text(), r.Number()
	if fields, ok := r.Next(); ok {
		e.Fields, r.Err = fields.AsStrSlice()
	}
	e.Override = r.Text()
	return e, r.Err
}

// instanceOf returns the instance that an entry describes. It accepts whatever the hash has: what
// cannot be read gets its default, so that one bad record hides no other.
//
//nolint:funlen // one flat switch over the fields
func instanceOf(service string, e *entry) *Instance {
	in := &Instance{Registration: Registration{Service: service, ID: e.ID}, Weight: 1, Revision: e.Revision}
	failing, why := false, ""
	for f := e.Fields; len(f) >= 2; f = f[2:] {
		value := f[1]
		switch f[0] {
		case "host":
			in.Host = value
		case "port":
			in.Port, _ = strconv.Atoi(value)
		case "protocol":
			in.Protocol = value
		case "healthy":
			in.Unhealthy = value == "false"
		case "weight":
			if w, err := strconv.ParseFloat(value, 64); err == nil && w >= 0 {
				in.Weight = w
			}
		case "enabled":
			in.Disabled = value == "false"
		case "draining":
			in.Draining = value == "true"
		case "interval":
			in.Interval = msDuration(value)
		case "kind":
			in.Persistent = value == "persistent"
		case "check":
			if value != "" {
				in.Check = new(Check)
				if json.Unmarshal([]byte(value), in.Check) != nil {
					in.Check = nil
				}
			}
		case "epoch":
			in.Epoch = value
		case "registered":
			in.RegisteredAt = time.UnixMilli(msDuration(value).Milliseconds())
		case "checked":
			failing = value == "failing"
		case "checked_why":
			why = value
		case "metrics":
			if json.Valid([]byte(value)) {
				in.Metrics = json.RawMessage(value)
			}
		case "origin":
			in.Origin = value
		default:
			if key, ok := strings.CutPrefix(f[0], "metadata_"); ok {
				if in.Metadata == nil {
					in.Metadata = make(map[string]string)
				}
				in.Metadata[key] = value
			}
		}
	}
	if failing {
		if in.Failing = why; why == "" {
			in.Failing = "its checks fail"
		}
	}
	in.own = own{Weight: in.Weight, Disabled: in.Disabled, Draining: in.Draining}
	if e.Override != "" {
		in.Override = new(Override)
		if json.Unmarshal([]byte(e.Override), in.Override) != nil {
			in.Override = nil
		}
	}
	return in
}

func msDuration(text string) time.Duration {
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(ms) * time.Millisecond
}

// own holds the provider's values that an override may hide.
type own struct {
	Weight             float64
	Disabled, Draining bool
}

// applyOverride sets Weight, Disabled and Draining from own and the override, at Redis' time. Call
// it only for an instance that was not given out yet.
func (i *Instance) applyOverride(atMS int64) {
	i.Weight, i.Disabled, i.Draining = i.own.Weight, i.own.Disabled, i.own.Draining
	o := i.Override
	if o == nil || o.ended(atMS) {
		return
	}
	if o.Weight != nil {
		i.Weight = *o.Weight
	}
	if o.Enabled != nil {
		i.Disabled = !*o.Enabled
	}
	if o.Draining != nil {
		i.Draining = *o.Draining
	}
}

func (o *Override) ended(atMS int64) bool { return o.UntilMS > 0 && o.UntilMS <= atMS }
