package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// maxNodeList is the size of the largest node list: 100,000 nodes of some KiB.
const maxNodeList = 512 << 20

// Entry is one node of a list, with its faults.
type Entry struct {
	node freeslot.Node
	// refusals holds its faults; none for a node that can be copied.
	refusals []refusal
	// unknown holds the fields that have no meaning here and were not read.
	unknown []string
}

// refusal is a wrong field of a node, with the reason.
type refusal struct{ field, reason string }

// Read reads a JSON array of nodes, or an object with that array as "nodes". A fault of one node
// refuses that node. The error concerns the list as a whole.
func Read(r io.Reader) ([]Entry, error) {
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
	entries := make([]Entry, len(list))
	first := make(map[string]int, len(list))
	for i, raw := range list {
		e := readNode(raw)
		if j, ok := first[e.node.ID]; ok && len(e.refusals) == 0 {
			e.refusals = []refusal{{"node_id", fmt.Sprintf("is that of nodes[%d] too, expected each id once", j)}}
		} else if len(e.refusals) == 0 {
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

// notCopied are fields about the present state of a node, which only its agent knows, and fields
// that this system sets itself.
var notCopied = []string{
	"status", "health", "epoch", "used", "version", "checked", "registered_at_ms", "last_heartbeat_ms", "member_of",
	"silent", "degraded", "age_ms",
}

// readNode reads one node. A refused node has its id, too, if there is one.
func readNode(raw json.RawMessage) Entry {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return Entry{refusals: []refusal{{"node", "is " + excerpt(raw) + ", expected an object"}}}
	}
	r := nodeReader{Entry{unknown: unknownIn("capabilities", fields["capabilities"], stages)}}
	for _, part := range []struct {
		field string
		read  func(json.RawMessage)
	}{
		{"node_id", r.id},
		{"max_concurrency", r.maxConcurrency},
		{"resources", r.resources},
		{"capabilities", r.capabilities},
		{"installed_services", r.services},
		{"pool_ids", r.pools},
		{"labels", r.labels},
		{"features_supported", r.features},
	} {
		value := fields[part.field]
		delete(fields, part.field)
		if !absent(value) {
			part.read(value)
		}
	}
	for name := range fields {
		if !slices.Contains(notCopied, name) {
			r.unknown = append(r.unknown, name)
		}
	}
	slices.Sort(r.unknown)
	r.validate()
	return r.Entry
}

// unknownIn returns the fields of an object that are not known, with its name before them.
func unknownIn(name string, raw json.RawMessage, known []string) (out []string) {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(raw, &fields) // another value is refused elsewhere
	for field := range fields {
		if !slices.Contains(known, field) {
			out = append(out, name+"."+field)
		}
	}
	return out
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// excerpt returns the beginning of a value.
func excerpt[T ~string | ~[]byte](value T) string {
	const limit = 60
	if r := []rune(string(value)); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return string(value)
}
