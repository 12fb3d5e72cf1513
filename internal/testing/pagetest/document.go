package pagetest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Document is a parsed AsyncAPI file, with the files of JSON Schema that it refers to.
type Document struct {
	root map[string]any
	// files has the other files by the name in references. Their references have that name, too.
	files map[string]map[string]any
}

// ReadDocument reads an AsyncAPI file.
func ReadDocument(t *testing.T, path string) *Document {
	t.Helper()
	d := &Document{files: map[string]map[string]any{}}
	d.root = read(t, path)
	walk("#", d.root, func(_ string, object map[string]any) {
		ref, _ := object["$ref"].(string)
		if file, _, _ := strings.Cut(ref, "#"); file != "" && d.files[file] == nil {
			schemas := read(t, filepath.Join(filepath.Dir(path), file))
			walk("#", schemas, func(_ string, object map[string]any) {
				if ref, ok := object["$ref"].(string); ok {
					object["$ref"] = file + ref
				}
			})
			d.files[file] = schemas
		}
	})
	return d
}

func read(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	return tree
}

// walk calls each for every object in v.
func walk(path string, v any, each func(path string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		each(path, v)
		for key, value := range v {
			walk(path+"/"+key, value, each)
		}
	case []any:
		for i, value := range v {
			walk(fmt.Sprintf("%s/%d", path, i), value, each)
		}
	}
}

// At returns the value at a path such as "#/components/messages/submit" or, in another file,
// "schema/client-frames.json#/$defs/Job"; nil if there is none.
func (d *Document) At(path string) any {
	file, pointer, _ := strings.Cut(path, "#/")
	tree := d.root
	if file != "" {
		tree = d.files[file]
	}
	var here any = tree
	for name := range strings.SplitSeq(pointer, "/") {
		object, ok := here.(map[string]any)
		if !ok {
			return nil
		}
		here = object[name]
	}
	return here
}

// Object returns v as an object of the page, nil if it is not one.
func Object(v any) map[string]any { o, _ := v.(map[string]any); return o }

// Payload returns the schema of a message.
func (d *Document) Payload(name string) map[string]any {
	return d.resolve(Object(d.At("#/components/messages/" + name + "/payload")))
}

// CheckRefs reports references that lead nowhere, and parts of the page that nothing refers to.
func (d *Document) CheckRefs(t *testing.T) {
	t.Helper()
	used := map[string]bool{}
	check := func(path string, object map[string]any) {
		if ref, ok := object["$ref"].(string); ok {
			used[ref] = true
			if d.At(ref) == nil {
				t.Errorf("%s: %s leads nowhere", path, ref)
			}
		}
	}
	walk("#", d.root, check)
	for file, schemas := range d.files {
		walk(file+"#", schemas, check)
	}
	for _, part := range []string{"#/components/messages", "#/components/schemas", "#/channels/session/messages"} {
		for name := range Object(d.At(part)) {
			if !used[part+"/"+name] {
				t.Errorf("%s/%s is not used", part, name)
			}
		}
	}
}

// List returns the values of a list such as an enum.
func (d *Document) List(path string) []string {
	list, _ := d.At(path).([]any)
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprint(v))
	}
	return names
}

// Constants returns the values of a file's string constants whose names have the prefix.
func Constants(t *testing.T, path, prefix string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			value, _ := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if !strings.HasPrefix(name.Name, prefix) {
					continue
				}
				literal, ok := value.Values[i].(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					t.Fatalf("%s: %s is not a plain string, which this reader needs", path, name.Name)
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, text)
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants %s…", path, prefix)
	}
	return values
}

// SameNames compares the code's names with the names on a page, in any order.
func SameNames(t *testing.T, what string, code, page []string) {
	t.Helper()
	slices.Sort(code)
	slices.Sort(page)
	if !slices.Equal(code, page) {
		t.Errorf("%s: the code has %v, the page %v", what, code, page)
	}
}

func (d *Document) resolve(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema = Object(d.At(ref))
	}
}

// Note marks the properties that a value has, in a schema and in the schemas that it refers to.
func (d *Document) Note(seen map[string]map[string]bool, name string, schema map[string]any, value any) {
	if ref, ok := schema["$ref"].(string); ok {
		name = ref
	}
	schema = d.resolve(schema)
	if list, ok := value.([]any); ok {
		for _, item := range list {
			d.Note(seen, name, Object(schema["items"]), item)
		}
		return
	}
	fields, ok := value.(map[string]any)
	if !ok || schema["properties"] == nil {
		return
	}
	if seen[name] == nil {
		seen[name] = map[string]bool{}
	}
	for property, sub := range Object(schema["properties"]) {
		part, has := fields[property]
		seen[name][property] = seen[name][property] || has
		if has {
			d.Note(seen, name+"."+property, Object(sub), part)
		}
	}
}

// Validate checks the part of JSON Schema that the page uses. Other keywords fail, so that none
// goes unchecked. Objects without additionalProperties may have more on the wire, but not here. A
// placeholder of an example satisfies everything.
func (d *Document) Validate(schema map[string]any, value any) error {
	if text, _ := value.(string); strings.HasPrefix(text, "…") {
		return nil
	}
	schema = d.resolve(schema)
	for keyword, want := range schema {
		var ok bool
		switch keyword {
		case "description", "examples":
			ok = true
		case "type":
			ok = typeOf(value) == want || want == "integer" && typeOf(value) == "number"
		case "const":
			ok = value == want
		case "pattern":
			expression, _ := want.(string)
			text, isText := value.(string)
			ok = isText && regexp.MustCompile(expression).MatchString(text)
		case "enum":
			list, _ := want.([]any)
			ok = slices.Contains(list, value)
		case "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum":
			ok = within(keyword, want, value)
		case "required":
			ok = hasAll(want, value)
		case "oneOf":
			matches := 0
			list, _ := want.([]any)
			for _, alternative := range list {
				if d.Validate(Object(alternative), value) == nil {
					matches++
				}
			}
			ok = matches == 1
		case "items":
			ok = true
			list, _ := value.([]any)
			for i, item := range list {
				if err := d.Validate(Object(want), item); err != nil {
					return fmt.Errorf("[%d]: %w", i, err)
				}
			}
		case "properties", "additionalProperties":
			ok = true
			if err := d.validateMembers(schema, value); err != nil {
				return err
			}
		}
		if !ok {
			return fmt.Errorf("%v does not satisfy %s: %v", value, keyword, want)
		}
	}
	return nil
}

func (d *Document) validateMembers(schema map[string]any, value any) error {
	properties := Object(schema["properties"])
	for name, part := range Object(value) {
		sub, known := properties[name]
		if !known {
			sub = schema["additionalProperties"]
		}
		if Object(sub) == nil {
			return fmt.Errorf("%s is not on the page", name)
		}
		if err := d.Validate(Object(sub), part); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func typeOf(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	default:
		return reflect.TypeOf(value).String()
	}
}

func within(keyword string, want, value any) bool {
	bound, _ := want.(int)
	var n int
	switch value := value.(type) {
	case string:
		n = len(value)
	case []any:
		n = len(value)
	case float64:
		n = int(value)
	}
	if strings.HasPrefix(keyword, "min") {
		return n >= bound
	}
	return n <= bound
}

func hasAll(want, value any) bool {
	list, _ := want.([]any)
	for _, name := range list {
		text, _ := name.(string)
		if _, ok := Object(value)[text]; !ok {
			return false
		}
	}
	return true
}
