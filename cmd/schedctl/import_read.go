package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// maxNodeList bounds what is read of a node list: 100,000 nodes of some KiB.
const maxNodeList = 512 << 20

// importEntry is one node of a list, or why it is none.
type importEntry struct {
	node freeslot.Node
	// refusal is nil for a node that can be copied.
	refusal *importRefusal
	// unknown are the fields that mean nothing here and were not read.
	unknown []string
}

// importRefusal says which field of a node is wrong, and how.
type importRefusal struct{ field, reason string }

func refuse(field, format string, args ...any) *importRefusal {
	return &importRefusal{field: field, reason: fmt.Sprintf(format, args...)}
}

// readNodeList reads a JSON array of nodes, or an object that has it as "nodes". What
// is wrong with one node refuses that node; the error is of the list as a whole.
func readNodeList(r io.Reader) ([]importEntry, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxNodeList+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxNodeList:
		return nil, fmt.Errorf("is larger than %d MiB", maxNodeList>>20)
	case !utf8.Valid(data):
		return nil, errors.New("is not UTF-8")
	}
	list, err := splitNodeList(bytes.TrimSpace(data))
	if err != nil {
		return nil, err
	}
	entries := make([]importEntry, len(list))
	first := make(map[string]int, len(list))
	for i, raw := range list {
		e := readNode(raw)
		if j, ok := first[e.node.ID]; ok && e.refusal == nil {
			e.refusal = refuse("node_id", "is that of nodes[%d] too, expected each id once", j)
		} else if e.refusal == nil {
			first[e.node.ID] = i
		}
		entries[i] = e
	}
	return entries, nil
}

func splitNodeList(data []byte) (list []json.RawMessage, err error) {
	const expected = `expected a JSON array of nodes, or {"nodes": [...]}`
	if len(data) == 0 {
		return nil, errors.New("is empty, " + expected)
	}
	if data[0] != '{' {
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("cannot be read: %w; %s", err, expected)
		}
		if list == nil {
			return nil, errors.New("is null, " + expected)
		}
		return list, nil
	}
	var page map[string]json.RawMessage
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, fmt.Errorf("cannot be read: %w; %s", err, expected)
	}
	if absent(page["nodes"]) {
		return nil, errors.New(`is an object without "nodes", ` + expected)
	}
	if cursor := page["cursor"]; !absent(cursor) && string(cursor) != `""` {
		return nil, errors.New(`is one page of a listing: it has a "cursor", and lacks the nodes behind it`)
	}
	if err := json.Unmarshal(page["nodes"], &list); err != nil {
		return nil, fmt.Errorf(`has "nodes" that cannot be read: %w; %s`, err, expected)
	}
	return list, nil
}

// notCopied are fields that tell of a node's present, which only its agent can, or
// that this system gives itself.
var notCopied = []string{
	"status", "health", "epoch", "used", "version", "checked", "registered_at_ms", "last_heartbeat_ms", "member_of", "degraded", "age_ms",
}

// readNode reads one node. The id is set, if there is one, even when it is refused.
func readNode(raw json.RawMessage) (e importEntry) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		e.refusal = refuse("node", "is %s, expected an object", excerpt(raw))
		return e
	}
	e.unknown = unknownIn("capabilities", fields["capabilities"], stages)
	for _, part := range []struct {
		field string
		read  func(json.RawMessage, *freeslot.Node) *importRefusal
	}{
		{"node_id", readID},
		{"max_concurrency", readMaxConcurrency},
		{"resources", readResources},
		{"capabilities", readCapabilities},
		{"installed_services", readServices},
		{"pool_ids", readPools},
		{"labels", readLabels},
		{"features_supported", readFeatures},
	} {
		value := fields[part.field]
		delete(fields, part.field)
		if absent(value) {
			continue
		}
		if e.refusal = part.read(value, &e.node); e.refusal != nil {
			return e
		}
	}
	for name := range fields {
		if !slices.Contains(notCopied, name) {
			e.unknown = append(e.unknown, name)
		}
	}
	slices.Sort(e.unknown)
	e.refusal = validNode(&e.node)
	return e
}

// unknownIn are the fields of an object besides these, with its name before them.
func unknownIn(name string, raw json.RawMessage, known []string) (out []string) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields) // what is no object has been refused
	for field := range fields {
		if !slices.Contains(known, field) {
			out = append(out, name+"."+field)
		}
	}
	return out
}

func validNode(n *freeslot.Node) *importRefusal {
	if n.ID == "" {
		return refuse("node_id", "is missing")
	}
	if n.MaxConcurrency == 0 {
		return refuse("resources.max_concurrency", "is missing or 0, expected 1 to %d", freeslot.MaxConcurrencyLimit)
	}
	var bad *freeslot.Error
	if err := n.Validate("node"); errors.As(err, &bad) {
		field := strings.TrimPrefix(bad.Field, "node.")
		return &importRefusal{field: field, reason: strings.TrimPrefix(strings.TrimPrefix(bad.Message, bad.Field), " ")}
	}
	return nil
}

func readID(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	if json.Unmarshal(raw, &n.ID) != nil {
		return refuse("node_id", "is %s, expected text", excerpt(raw))
	}
	return nil
}

func readMaxConcurrency(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	return readSlots("max_concurrency", raw, n)
}

// readSlots refuses two different numbers, of which nobody can say which is meant.
func readSlots(field string, raw json.RawMessage, n *freeslot.Node) *importRefusal {
	slots, err := strconv.Atoi(string(raw))
	switch {
	case err != nil:
		return refuse(field, "is %s, expected a whole number", excerpt(raw))
	case slots < 1 || slots > freeslot.MaxConcurrencyLimit:
		return refuse(field, "is %d, expected 1 to %d", slots, freeslot.MaxConcurrencyLimit)
	case n.MaxConcurrency != 0 && n.MaxConcurrency != slots:
		return refuse(field, "is %d, and max_concurrency is %d: expected one number", slots, n.MaxConcurrency)
	}
	n.MaxConcurrency = slots
	return nil
}

// readResources takes the number of slots; the other figures are of the moment.
func readResources(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return refuse("resources", "is %s, expected an object", excerpt(raw))
	}
	if absent(fields["max_concurrency"]) {
		return nil
	}
	return readSlots("resources.max_concurrency", fields["max_concurrency"], n)
}

// stages are the fields of capabilities.
var stages = []string{"asr_languages", "tts_languages", "semantic_languages"}

func readCapabilities(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return refuse("capabilities", "is %s, expected an object", excerpt(raw))
	}
	for i, into := range []*[]string{&n.Languages.ASR, &n.Languages.TTS, &n.Languages.Semantic} {
		name := stages[i]
		if !absent(fields[name]) && json.Unmarshal(fields[name], into) != nil {
			return refuse("capabilities."+name, "is %s, expected a list of languages", excerpt(fields[name]))
		}
	}
	return nil
}

// serviceNames are the fields in which lists have the name of a service; the first
// that is there counts.
var serviceNames = []string{"name", "service_type", "type", "service_id"}

func readServices(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return refuse("installed_services", "is %s, expected a list", excerpt(raw))
	}
	for i, entry := range list {
		s, ok := readService(entry)
		if !ok {
			return refuse(fmt.Sprintf("installed_services[%d]", i), "is %s, expected a name, or an object with one of %s, and version as text",
				excerpt(entry), strings.Join(serviceNames, ", "))
		}
		if !slices.Contains(n.Services, s) {
			n.Services = append(n.Services, s)
		}
	}
	return nil
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

// readPools takes numbers as names: pool 7 is the pool "7".
func readPools(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return refuse("pool_ids", "is %s, expected a list", excerpt(raw))
	}
	for i, entry := range list {
		var id string
		if number, err := strconv.ParseUint(string(entry), 10, 64); err == nil {
			id = strconv.FormatUint(number, 10)
		} else if json.Unmarshal(entry, &id) != nil || absent(entry) {
			return refuse(fmt.Sprintf("pool_ids[%d]", i), "is %s, expected a name or a whole number", excerpt(entry))
		}
		if !slices.Contains(n.Pools, id) {
			n.Pools = append(n.Pools, id)
		}
	}
	return nil
}

func readLabels(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	if json.Unmarshal(raw, &n.Labels) != nil {
		return refuse("labels", "is %s, expected an object of texts", excerpt(raw))
	}
	return nil
}

// readFeatures takes names with true or false, or a list of names, which are true.
func readFeatures(raw json.RawMessage, n *freeslot.Node) *importRefusal {
	if json.Unmarshal(raw, &n.Features) == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return refuse("features_supported", "is %s, expected an object of true and false, or a list of names", excerpt(raw))
	}
	n.Features = make(map[string]bool, len(list))
	for _, name := range list {
		n.Features[name] = true
	}
	return nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// excerpt is enough of a value to find it.
func excerpt(raw json.RawMessage) string { return shorten(string(raw), maxCell) }
