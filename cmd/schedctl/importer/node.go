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

// maxRefusals is the largest number of faults of one node that are named.
const maxRefusals = 20

// nodeReader fills an entry field by field, and records every fault.
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

// validate checks the fields that could be read. The check of a profile ends at the first fault, so
// each field is checked in a profile of its own.
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
		r.refuse(
			strings.TrimPrefix(bad.Field, "node."), "%s", strings.TrimPrefix(strings.TrimPrefix(bad.Message, bad.Field), " "),
		)
	}
}

// decode refuses a value that is not of type T, which expected describes.
func decode[T any](r *nodeReader, field string, raw json.RawMessage, expected string) (v T, ok bool) {
	if json.Unmarshal(raw, &v) != nil {
		r.refuse(field, "is %s, expected %s", excerpt(raw), expected)
		return v, false
	}
	return v, true
}

type object = map[string]json.RawMessage

func (r *nodeReader) id(raw json.RawMessage) {
	r.node.ID, _ = decode[string](r, "node_id", raw, "text")
}

func (r *nodeReader) maxConcurrency(raw json.RawMessage) {
	r.slots("max_concurrency", raw)
}

// slots refuses two different numbers: nothing decides which one is meant.
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

// resources takes the number of slots; the other figures change all the time.
func (r *nodeReader) resources(raw json.RawMessage) {
	if fields, ok := decode[object](r, "resources", raw, "an object"); ok && !absent(fields["max_concurrency"]) {
		r.slots("resources.max_concurrency", fields["max_concurrency"])
	}
}

// stages are the fields of capabilities.
var stages = []string{"asr_languages", "tts_languages", "semantic_languages"}

func (r *nodeReader) capabilities(raw json.RawMessage) {
	fields, _ := decode[object](r, "capabilities", raw, "an object")
	for i, into := range []*[]string{&r.node.Languages.ASR, &r.node.Languages.TTS, &r.node.Languages.Semantic} {
		if value := fields[stages[i]]; !absent(value) {
			*into, _ = decode[[]string](r, "capabilities."+stages[i], value, "a list of languages")
		}
	}
}

// serviceNames lists the fields that can hold the name of a service; the first one present counts.
var serviceNames = []string{"name", "service_type", "type", "service_id"}

func (r *nodeReader) services(raw json.RawMessage) {
	list, _ := decode[[]json.RawMessage](r, "installed_services", raw, "a list")
	for i, entry := range list {
		s, ok := readService(entry)
		if !ok {
			r.refuse(fmt.Sprintf("installed_services[%d]", i),
				"is %s, expected a name, or an object with one of %s, and version as text",
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
	list, _ := decode[[]json.RawMessage](r, "pool_ids", raw, "a list")
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
	r.node.Labels, _ = decode[map[string]string](r, "labels", raw, "an object of texts")
}

// features takes names with true or false, or a list of names, which are true.
func (r *nodeReader) features(raw json.RawMessage) {
	if json.Unmarshal(raw, &r.node.Features) == nil {
		return
	}
	list, _ := decode[[]string](r, "features_supported", raw, "an object of true and false, or a list of names")
	r.node.Features = make(map[string]bool, len(list))
	for _, name := range list {
		r.node.Features[name] = true
	}
}
