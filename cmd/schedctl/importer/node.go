package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// maxRefusals is how many faults of one node are named.
const maxRefusals = 20

// nodeReader fills an entry field by field, and notes all that is wrong.
type nodeReader struct{ Entry }

func (r *nodeReader) refuse(field, format string, args ...any) {
	if len(r.refusals) < maxRefusals {
		r.refusals = append(r.refusals, refusal{field, fmt.Sprintf(format, args...)})
	}
}

// refused reports whether the field, or a part of it, was refused before.
func (r *nodeReader) refused(field string) bool {
	return slices.ContainsFunc(r.refusals, func(bad refusal) bool {
		rest, ok := strings.CutPrefix(bad.field, field)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// validate checks what could be read. A profile's own check ends at the first fault, so
// each field is checked in a profile that has nothing else.
func (r *nodeReader) validate() {
	n := &r.node
	if n.ID == "" && !r.refused("node_id") {
		r.refuse("node_id", "is missing")
	}
	if n.MaxConcurrency == 0 && !r.refused("max_concurrency") && !r.refused("resources") {
		r.refuse("resources.max_concurrency", "is missing or 0, expected 1 to %d", freeslot.MaxConcurrencyLimit)
	}
	for _, part := range []struct {
		field string
		alone freeslot.Node
	}{
		{"node_id", freeslot.Node{ID: n.ID}},
		{"installed_services", freeslot.Node{Services: n.Services}},
		{"features_supported", freeslot.Node{Features: n.Features}},
		{"pool_ids", freeslot.Node{Pools: n.Pools}},
		{"labels", freeslot.Node{Labels: n.Labels}},
		{"capabilities.asr_languages", freeslot.Node{Languages: freeslot.Languages{ASR: n.Languages.ASR}}},
		{"capabilities.tts_languages", freeslot.Node{Languages: freeslot.Languages{TTS: n.Languages.TTS}}},
		{"capabilities.semantic_languages", freeslot.Node{Languages: freeslot.Languages{Semantic: n.Languages.Semantic}}},
	} {
		if !r.refused(part.field) {
			r.validateAlone(part.alone)
		}
	}
}

func (r *nodeReader) validateAlone(n freeslot.Node) {
	n.MaxConcurrency = 1
	if n.ID == "" {
		n.ID = "n"
	}
	var bad *freeslot.Error
	if err := n.Validate("node"); errors.As(err, &bad) {
		r.refuse(strings.TrimPrefix(bad.Field, "node."), "%s", strings.TrimPrefix(strings.TrimPrefix(bad.Message, bad.Field), " "))
	}
}

func (r *nodeReader) id(raw json.RawMessage) {
	if json.Unmarshal(raw, &r.node.ID) != nil {
		r.refuse("node_id", "is %s, expected text", excerpt(raw))
	}
}

func (r *nodeReader) maxConcurrency(raw json.RawMessage) {
	r.slots("max_concurrency", raw)
}

// slots refuses two different numbers, of which nobody can say which is meant.
func (r *nodeReader) slots(field string, raw json.RawMessage) {
	slots, err := strconv.Atoi(string(raw))
	switch {
	case err != nil:
		r.refuse(field, "is %s, expected a whole number", excerpt(raw))
	case slots < 1 || slots > freeslot.MaxConcurrencyLimit:
		r.refuse(field, "is %d, expected 1 to %d", slots, freeslot.MaxConcurrencyLimit)
	case r.node.MaxConcurrency != 0 && r.node.MaxConcurrency != slots:
		r.refuse(field, "is %d, and max_concurrency is %d: expected one number", slots, r.node.MaxConcurrency)
	default:
		r.node.MaxConcurrency = slots
	}
}

// resources takes the number of slots; the other figures are of the moment.
func (r *nodeReader) resources(raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		r.refuse("resources", "is %s, expected an object", excerpt(raw))
		return
	}
	if !absent(fields["max_concurrency"]) {
		r.slots("resources.max_concurrency", fields["max_concurrency"])
	}
}

// stages are the fields of capabilities.
var stages = []string{"asr_languages", "tts_languages", "semantic_languages"}

func (r *nodeReader) capabilities(raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		r.refuse("capabilities", "is %s, expected an object", excerpt(raw))
		return
	}
	for i, into := range []*[]string{&r.node.Languages.ASR, &r.node.Languages.TTS, &r.node.Languages.Semantic} {
		name := stages[i]
		if !absent(fields[name]) && json.Unmarshal(fields[name], into) != nil {
			r.refuse("capabilities."+name, "is %s, expected a list of languages", excerpt(fields[name]))
		}
	}
}

// serviceNames are the fields in which lists have the name of a service; the first
// that is there counts.
var serviceNames = []string{"name", "service_type", "type", "service_id"}

func (r *nodeReader) services(raw json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		r.refuse("installed_services", "is %s, expected a list", excerpt(raw))
		return
	}
	for i, entry := range list {
		s, ok := readService(entry)
		if !ok {
			r.refuse(fmt.Sprintf("installed_services[%d]", i), "is %s, expected a name, or an object with one of %s, and version as text",
				excerpt(entry), strings.Join(serviceNames, ", "))
			continue
		}
		if !slices.Contains(r.node.Services, s) {
			r.node.Services = append(r.node.Services, s)
		}
	}
}

func readService(raw json.RawMessage) (s freeslot.Service, ok bool) {
	if json.Unmarshal(raw, &s.Name) == nil && s.Name != "" {
		return s, true
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return s, false
	}
	if v := fields["version"]; !absent(v) && json.Unmarshal(v, &s.Version) != nil {
		return s, false
	}
	for _, name := range serviceNames {
		if !absent(fields[name]) {
			return s, json.Unmarshal(fields[name], &s.Name) == nil && s.Name != ""
		}
	}
	return s, false
}

// pools takes numbers as names: pool 7 is the pool "7".
func (r *nodeReader) pools(raw json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		r.refuse("pool_ids", "is %s, expected a list", excerpt(raw))
		return
	}
	for i, entry := range list {
		var id string
		if number, err := strconv.ParseUint(string(entry), 10, 64); err == nil {
			id = strconv.FormatUint(number, 10)
		} else if json.Unmarshal(entry, &id) != nil || absent(entry) {
			r.refuse(fmt.Sprintf("pool_ids[%d]", i), "is %s, expected a name or a whole number", excerpt(entry))
			continue
		}
		if !slices.Contains(r.node.Pools, id) {
			r.node.Pools = append(r.node.Pools, id)
		}
	}
}

func (r *nodeReader) labels(raw json.RawMessage) {
	if json.Unmarshal(raw, &r.node.Labels) != nil {
		r.refuse("labels", "is %s, expected an object of texts", excerpt(raw))
	}
}

// features takes names with true or false, or a list of names, which are true.
func (r *nodeReader) features(raw json.RawMessage) {
	if json.Unmarshal(raw, &r.node.Features) == nil {
		return
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		r.refuse("features_supported", "is %s, expected an object of true and false, or a list of names", excerpt(raw))
		return
	}
	r.node.Features = make(map[string]bool, len(list))
	for _, name := range list {
		r.node.Features[name] = true
	}
}
