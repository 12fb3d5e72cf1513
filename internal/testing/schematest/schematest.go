// Package schematest writes the JSON Schemas of frames, docs/schema, from the Go types. Only tests
// import it.
package schematest

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// refs is how one definition refers to another.
const refs = "#/$defs/"

// Message describes one message of a protocol.
type Message struct {
	// Name is the definition's name, such as PingMessage.
	Name string
	// Type is the value of the field "type".
	Type string
	Doc  string
	// Fields lists the other fields. Those that may be absent end with a question mark.
	Fields string
	// OneOf lists alternatives: the message has exactly one of these fields.
	OneOf []string
}

// Field describes a field of a message or of another definition.
type Field struct {
	Doc string
	// Bound changes the schema that the Go type gives. It may be nil.
	Bound func(*huma.Schema)
}

// Peer is one side of a protocol, with the messages that it sends.
type Peer struct {
	// Name begins the names of two definitions: the union of its messages, and its frame.
	Name string
	Doc  string
	// Go has the fields of all messages.
	Go []reflect.Type
	// Strict is true if the other side refuses unknown fields.
	Strict bool
	// Arrays is true if a frame may also be an array of messages.
	Arrays   bool
	Messages []Message
}

// Frames describes a file of docs/schema.
type Frames struct {
	Title, Doc string
	Peers      []Peer
	// Fields describes fields by name, such as "id", or by definition and name, such as
	// "HelloMessage.node", which comes first.
	Fields map[string]Field
	// Strict lists the definitions whose reader refuses unknown fields.
	Strict []string
	// Left lists fields of definitions that this protocol never carries: "JobStatus.held_by".
	Left []string
	// Optional lists fields of definitions that the reader does not need, whatever the Go type writes.
	Optional []string
	// Docs describes definitions by name, and FieldDocs the fields of package freeslot's types, by
	// type and field.
	Docs      map[string]string
	FieldDocs map[string]map[string]string
}

// Check compares docs/schema/<name> with the frames. With -update it writes the file first.
func (f *Frames) Check(t *testing.T, root, name string) {
	t.Helper()
	b := &builder{Frames: f, t: t, registry: huma.NewMapRegistry(refs, huma.DefaultSchemaNamer), used: map[string]bool{}}
	text, err := json.MarshalIndent(b.file(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for field := range f.Fields {
		if !b.used[field] {
			t.Errorf("no message or definition has the field %s", field)
		}
	}
	golden.File(t, filepath.Join(root, "docs", "schema", name), string(text)+"\n")
}

type builder struct {
	*Frames
	t        *testing.T
	registry huma.Registry
	used     map[string]bool // keys of Fields
}

func (b *builder) file() *huma.Schema {
	messages := map[string]*huma.Schema{}
	file := &huma.Schema{Title: b.Title, Description: b.Doc}
	for _, peer := range b.Peers {
		b.peer(&peer, messages)
		file.AnyOf = append(file.AnyOf, &huma.Schema{Ref: refs + peer.Name + "Frame"})
	}
	defs := b.registry.Map()
	for name, schema := range defs {
		b.define(name, schema)
	}
	maps.Copy(defs, messages)
	file.Extensions = map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": defs}
	return file
}

// peer adds the definitions of a peer's messages to defs.
func (b *builder) peer(peer *Peer, defs map[string]*huma.Schema) {
	properties := map[string]*huma.Schema{}
	for _, typ := range peer.Go {
		maps.Copy(properties, huma.SchemaFromType(b.registry, typ).Properties)
	}
	left := maps.Clone(properties)
	delete(left, "type")
	message := &huma.Schema{
		Type: huma.TypeObject, Description: peer.Doc, Discriminator: &huma.Discriminator{PropertyName: "type"},
	}
	for _, m := range peer.Messages {
		if defs[m.Name] != nil {
			b.t.Fatalf("two messages have the name %s", m.Name)
		}
		defs[m.Name] = b.message(peer, &m, properties, left)
		message.OneOf = append(message.OneOf, &huma.Schema{Ref: refs + m.Name})
	}
	for name := range left {
		b.t.Errorf("no message of %s has the field %s", peer.Name, name)
	}
	ref := &huma.Schema{Ref: refs + peer.Name + "Message"}
	frame := &huma.Schema{Description: "One message.", AnyOf: []*huma.Schema{ref}}
	if peer.Arrays {
		frame.Description = "One message, or an array of messages."
		frame.AnyOf = append(frame.AnyOf, &huma.Schema{Type: huma.TypeArray, Items: ref})
	}
	defs[peer.Name+"Message"], defs[peer.Name+"Frame"] = message, frame
}

func (b *builder) message(peer *Peer, m *Message, properties, left map[string]*huma.Schema) *huma.Schema {
	out := &huma.Schema{
		Type: huma.TypeObject, Description: m.Doc, Required: []string{"type"},
		Properties: map[string]*huma.Schema{"type": {Extensions: map[string]any{"const": m.Type}}},
	}
	if peer.Strict {
		out.AdditionalProperties = false
	}
	for _, field := range strings.Fields(m.Fields) {
		name, optional := strings.CutSuffix(field, "?")
		schema := properties[name]
		if schema == nil {
			b.t.Fatalf("%s.%s is in no Go type", m.Name, name)
		}
		delete(left, name)
		if !optional {
			out.Required = append(out.Required, name)
		}
		out.Properties[name] = b.describe(m.Name, name, schema)
	}
	for _, name := range m.OneOf {
		out.OneOf = append(out.OneOf, &huma.Schema{Required: []string{name}})
	}
	return out
}

// define completes a definition that comes from a Go type.
func (b *builder) define(name string, schema *huma.Schema) {
	schema.Description, schema.AdditionalProperties = b.Docs[name], nil
	if slices.Contains(b.Strict, name) {
		schema.AdditionalProperties = false
	}
	for field, property := range schema.Properties {
		if slices.Contains(b.Left, name+"."+field) {
			delete(schema.Properties, field)
			continue
		}
		schema.Properties[field] = b.describe(name, field, property)
	}
	schema.Required = slices.DeleteFunc(slices.Clone(schema.Required), func(field string) bool {
		return slices.Contains(b.Optional, name+"."+field)
	})
}

// describe returns the schema of a field with its description and bounds.
func (b *builder) describe(definition, name string, schema *huma.Schema) *huma.Schema {
	out := plain(schema)
	out.Description = b.FieldDocs[definition][name]
	key := definition + "." + name
	field, ok := b.Fields[key]
	if !ok && strings.HasSuffix(definition, "Message") {
		key = name
		field, ok = b.Fields[key]
	}
	if !ok {
		field = publicFields[key]
	}
	b.used[key] = true
	if field.Doc != "" {
		out.Description = field.Doc
	}
	if field.Bound != nil {
		field.Bound(out)
	}
	return out
}

// plain copies a schema without the forms that a frame never has: arrays are not null, and an
// integer is an integer whatever the size of the Go type.
func plain(schema *huma.Schema) *huma.Schema {
	out := *schema
	out.Nullable, out.Format = false, ""
	if out.Items != nil {
		out.Items = plain(out.Items)
	}
	if values, ok := out.AdditionalProperties.(*huma.Schema); ok {
		out.AdditionalProperties = plain(values)
	}
	return &out
}
