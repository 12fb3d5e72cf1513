package session

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

const asyncAPIPage = "../../docs/asyncapi.yaml"

// document is a parsed AsyncAPI file.
type document map[string]any

func readDocument(t *testing.T) document {
	t.Helper()
	text, err := os.ReadFile(asyncAPIPage)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any // not a document: its maps would be documents, too
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// at follows a path such as "#/components/schemas/Job"; nil if it leads nowhere.
func (d document) at(path string) any {
	var here any = map[string]any(d)
	for _, name := range strings.Split(strings.TrimPrefix(path, "#/"), "/") {
		object, ok := here.(map[string]any)
		if !ok {
			return nil
		}
		here = object[name]
	}
	return here
}

func object(v any) map[string]any { o, _ := v.(map[string]any); return o }

// payload is the schema of a message.
func (d document) payload(name string) map[string]any {
	return object(d.at("#/components/messages/" + name + "/payload"))
}

func TestAsyncAPIRefs(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	used := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
				if d.at(ref) == nil {
					t.Errorf("%s: %s leads nowhere", path, ref)
				}
			}
			for key, value := range v {
				walk(path+"/"+key, value)
			}
		case []any:
			for i, value := range v {
				walk(fmt.Sprintf("%s/%d", path, i), value)
			}
		}
	}
	walk("#", map[string]any(d))
	for _, part := range []string{"#/components/messages", "#/components/schemas", "#/channels/session/messages"} {
		for name := range object(d.at(part)) {
			if !used[part+"/"+name] {
				t.Errorf("%s/%s is not used", part, name)
			}
		}
	}
}

// TestAsyncAPINames: the page and the code have the same types, codes and states.
func TestAsyncAPINames(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	var want []string
	for _, typ := range wire.RequestTypes() {
		want = append(want, string(typ))
	}
	for _, typ := range wire.MessageTypes() {
		want = append(want, string(typ))
	}
	sameNames(t, "message types", want, slices.Collect(maps.Keys(object(d.at("#/components/messages")))))
	for _, name := range want {
		if got := object(object(d.payload(name)["properties"])["type"])["const"]; got != name {
			t.Errorf("message %s has type %v", name, got)
		}
	}
	sameNames(t, "error codes", constants(t, "../../error.go", "Code"), enum(d, "ErrorCode", "enum"))
	sameNames(t, "job error codes", constants(t, "../../status.go", "JobError"), enum(d, "JobErrorCode", "examples"))
	var states []string
	for _, state := range freeslot.States() {
		states = append(states, string(state))
	}
	sameNames(t, "job states", states, enum(d, "JobState", "enum"))
	var operators []string
	for _, operator := range freeslot.LabelOperators() {
		operators = append(operators, string(operator))
	}
	sameNames(t, "label operators", operators, enum(d, "LabelOperator", "enum"))
}

// TestProtocolPageNames: every code and every state is explained in docs/protocol.md.
func TestProtocolPageNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			rows[strings.Trim(cells[1], " `")] = true
		}
	}
	names := slices.Concat(constants(t, "../../error.go", "Code"), constants(t, "../../status.go", "JobError"), []string{
		"1000", "1001", "1003", "1007", "1009", strconv.Itoa(wire.CloseSlowClient), strconv.Itoa(wire.CloseSilentClient),
	})
	for _, state := range freeslot.States() {
		names = append(names, string(state))
	}
	for _, name := range names {
		if !rows[name] {
			t.Errorf("%s is in no table", name)
		}
	}
}

func enum(d document, schema, keyword string) []string {
	list, _ := object(d.at("#/components/schemas/" + schema))[keyword].([]any)
	var names []string
	for _, v := range list {
		names = append(names, fmt.Sprint(v))
	}
	return names
}

// constants are the values of the string constants of a file whose names have the prefix.
func constants(t *testing.T, path, prefix string) []string {
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
				if literal, ok := value.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING && strings.HasPrefix(name.Name, prefix) {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, text)
				}
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants %s…", path, prefix)
	}
	return values
}

func sameNames(t *testing.T, what string, code, page []string) {
	t.Helper()
	slices.Sort(code)
	slices.Sort(page)
	if !slices.Equal(code, page) {
		t.Errorf("%s: the code has %v, the page %v", what, code, page)
	}
}

// TestAsyncAPISchemas: the codec's output matches the page, and uses all of it.
func TestAsyncAPISchemas(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	job := &freeslot.Job{
		Service: "tts", Payload: json.RawMessage("1"), Slots: 2, Priority: 9, MaxAttempts: 5, TimeoutMS: 60000, RunAtMS: 5, IdempotencyKey: "i", ConcurrencyKey: "c", ConcurrencyLimit: 2, TraceParent: "00-x", Requirement: freeslot.Requirement{
			Pool: "p", PreferredPool: "q", Services: []string{"a@>=1.2 <2"}, SourceLanguage: "de", TargetLanguage: "en", Labels: map[string]string{"a": "b"},
			LabelRules: []freeslot.LabelRule{{Label: "a", Operator: freeslot.LabelIn, Values: []string{"b"}}}, Features: []string{"f"},
		},
		AffinityKey: "k", ProgressTimeoutMS: 7, OnLeaseLoss: freeslot.LeaseLossCancel,
	}
	bare := &freeslot.Job{Service: "tts"}
	status := &freeslot.JobStatus{
		Class: "0123456789abcdef", RunAtMS: 4,
		ID: "0-1", Tenant: "t", Service: "tts", State: freeslot.StateFailed, Node: "n", Attempt: 1, Slots: 1,
		Result: json.RawMessage("{}"), Error: &freeslot.JobError{Code: "c", Message: "m"},
		Progress: &freeslot.Progress{Attempt: 1, Seq: 2, AtMS: 3, Value: json.RawMessage("4")},
		Failures: 1, Priority: 9, DeadlineMS: 4, Position: 3, SubmittedAtMS: 1, AssignedAtMS: 2, FinishedAtMS: 3,
	}
	running := &freeslot.JobStatus{ID: "0-1", State: freeslot.StateRunning}
	failure := &freeslot.Error{
		Code: freeslot.CodeOverloaded, Message: "m", Field: "f", RetryAfter: time.Second, Breakdown: map[string]int{"pool": 1},
	}
	seen := map[string]map[string]bool{}
	for _, frame := range [][]byte{
		wire.AppendSubmit(nil, "r", job), wire.AppendSubmit(nil, "r", bare),
		wire.AppendSubmitBatch(nil, "r", []freeslot.Job{*job, *bare}),
		wire.AppendCancel(nil, "r", "0-1"), wire.AppendAttach(nil, "r", "0-1"), wire.AppendPing(nil, "r"),
		wire.AppendWelcome(nil, &wire.Welcome{Protocol: wire.Protocol}),
		wire.AppendAccepted(nil, "r", 0, "0-1", 0), wire.AppendAccepted(nil, "r", wire.NoIndex, "0-1", 3),
		wire.AppendAssigned(nil, "0-1", "n", 1, 2),
		wire.AppendResult(nil, status), wire.AppendStatus(nil, "r", status), wire.AppendStatus(nil, "r", running),
		wire.AppendProgress(nil, "0-1", status.Progress), wire.AppendDetached(nil, "0-1"),
		wire.AppendError(nil, "r", 0, "0-1", failure),
		wire.AppendError(nil, "", wire.NoIndex, "", &freeslot.Error{Code: freeslot.CodeInternal}),
		wire.AppendPong(nil, "r"), wire.AppendGoaway(nil, "x"),
	} {
		var value map[string]any
		if err := json.Unmarshal(frame, &value); err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
		name, _ := value["type"].(string)
		schema := d.payload(name)
		if err := d.validate(schema, value); err != nil {
			t.Errorf("%s: %v", frame, err)
		}
		d.note(seen, name, schema, value)
	}
	for schema, properties := range seen {
		for name, used := range properties {
			if !used {
				t.Errorf("%s.%s is on the page and never sent", schema, name)
			}
		}
	}
	for name, bad := range map[string]string{
		"submit": `{"type":"submit","id":"r","job":{"service":"a"},"jobs":[{"service":"a"}]}`,
		"cancel": `{"type":"cancel","id":"r"}`,
		"ping":   `{"type":"ping","id":"r","job_id":"x"}`,
		"error":  `{"type":"error","code":"other","message":""}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(bad), &value); err != nil {
			t.Fatal(err)
		}
		if d.validate(d.payload(name), value) == nil {
			t.Errorf("the page allows %s", bad)
		}
	}
}

func (d document) resolve(schema map[string]any) map[string]any {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema = object(d.at(ref))
	}
}

// note marks the properties that a value has, in a schema and in those that it refers to.
func (d document) note(seen map[string]map[string]bool, name string, schema map[string]any, value any) {
	if ref, ok := schema["$ref"].(string); ok {
		name = ref
	}
	schema = d.resolve(schema)
	if list, ok := value.([]any); ok {
		for _, item := range list {
			d.note(seen, name, object(schema["items"]), item)
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
	for property, sub := range object(schema["properties"]) {
		part, has := fields[property]
		seen[name][property] = seen[name][property] || has
		if has {
			d.note(seen, name+"."+property, object(sub), part)
		}
	}
}

// validate is as much of JSON Schema as the page uses. Other keywords fail, so that none goes
// unchecked. Objects without additionalProperties may have more on the wire, but not here.
func (d document) validate(schema map[string]any, value any) error {
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
				if d.validate(object(alternative), value) == nil {
					matches++
				}
			}
			ok = matches == 1
		case "items":
			ok = true
			list, _ := value.([]any)
			for i, item := range list {
				if err := d.validate(object(want), item); err != nil {
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

func (d document) validateMembers(schema map[string]any, value any) error {
	properties := object(schema["properties"])
	for name, part := range object(value) {
		sub, known := properties[name]
		if !known {
			sub = schema["additionalProperties"]
		}
		if object(sub) == nil {
			return fmt.Errorf("%s is not on the page", name)
		}
		if err := d.validate(object(sub), part); err != nil {
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
		if _, ok := object(value)[text]; !ok {
			return false
		}
	}
	return true
}
