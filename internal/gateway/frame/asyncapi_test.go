package frame

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/schematest"
)

const (
	asyncAPIPage = "../../../docs/asyncapi-node.yaml"
	protocolPage = "../../../docs/node-protocol.md"
	specAnswer   = "spec_answer" // the page's name for the answer, which has the type of its request
)

func TestAsyncAPIRefs(t *testing.T) {
	t.Parallel()
	pagetest.ReadDocument(t, asyncAPIPage).CheckRefs(t)
}

// codes are all codes of an error.
func codes(t *testing.T) []string {
	t.Helper()
	own := pagetest.Constants(t, "frame.go", "Code")
	for _, code := range []freeslot.Code{
		freeslot.CodeInvalidArgument, freeslot.CodePayloadTooLarge, freeslot.CodeOverloaded, freeslot.CodeUnavailable,
		freeslot.CodeUnauthenticated, freeslot.CodePermissionDenied, freeslot.CodeNotFound, freeslot.CodeInternal,
	} {
		own = append(own, string(code))
	}
	return own
}

// TestSchemaExamples: the examples of the page are messages of the schemas.
func TestSchemaExamples(t *testing.T) {
	t.Parallel()
	defs := "schema/node-frames.json#/$defs/"
	pagetest.ReadDocument(t, asyncAPIPage).CheckExamples(t, protocolPage, defs+"AgentMessage", defs+"GatewayMessage")
}

// TestAsyncAPINames: the page and the code have the same types and codes.
func TestAsyncAPINames(t *testing.T) {
	t.Parallel()
	d := pagetest.ReadDocument(t, asyncAPIPage)
	want := append(pagetest.Constants(t, "frame.go", "Type"), specAnswer)
	pagetest.SameNames(t, "message types", want, slices.Collect(maps.Keys(pagetest.Object(d.At("#/components/messages")))))
	for _, name := range want {
		typ := strings.TrimSuffix(name, "_answer")
		if got := pagetest.Object(pagetest.Object(d.Payload(name)["properties"])["type"])["const"]; got != typ {
			t.Errorf("message %s has type %v", name, got)
		}
	}
	pagetest.SameNames(t, "error codes", codes(t), d.List("schema/node-frames.json#/$defs/ErrorMessage/properties/code/enum"))
}

// TestProtocolPageNames: every message, every code and every close code is in a table of the page.
func TestProtocolPageNames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for line := range strings.Lines(string(text)) {
		for cell := range strings.SplitSeq(line, "|") {
			cells = append(cells, strings.Trim(cell, " `"))
		}
	}
	names := slices.Concat(codes(t), pagetest.Constants(t, "frame.go", "Type"), []string{"1000", "1001", "1003", "1007", "1009", "1013"})
	for _, code := range []int{CloseDefect, CloseRights, CloseSlow, CloseSilent, CloseSuperseded, CloseReplaced} {
		names = append(names, strconv.Itoa(code))
	}
	for _, name := range names {
		found := slices.ContainsFunc(cells, func(cell string) bool { return cell == name || strings.Contains(cell, "[`"+name+"`]") })
		if heading := "\n### " + name + "\n"; !found && !strings.Contains(string(text), heading) && name != string(TypeWelcome) {
			t.Errorf("%s is in no table", name)
		}
	}
}

// TestAsyncAPISchemas: messages match the page, and use all of it.
func TestAsyncAPISchemas(t *testing.T) {
	t.Parallel()
	d := pagetest.ReadDocument(t, asyncAPIPage)
	attempt := Attempt{Job: "0-1", N: 2}
	attempts := []Attempt{attempt}
	job := schematest.Job()
	deliveries := []Delivery{{Attempt: attempt, Tenant: "t", Job: job}, {Attempt: attempt, Tenant: "t"}}
	profile := &freeslot.Node{
		ID: "n", MaxConcurrency: 2, Pools: []string{"p"}, Labels: map[string]string{"a": "b"}, Features: map[string]bool{"f": true},
		Services:  []freeslot.Service{{Name: "tts", Version: "1", Endpoint: "a:1"}},
		Languages: freeslot.Languages{ASR: []string{"de"}, TTS: []string{"de"}, Semantic: []string{"de"}},
	}
	limits := Allows{
		Token: "k", Nodes: []string{"n*"}, Expires: "2027-01-01T00:00:00Z", Services: []string{"tts"}, Pools: []string{"p"},
		Labels: map[string][]string{"a": {"b"}}, Capabilities: []string{"de"}, Slots: 2,
	}
	welcome := &Welcome{
		Protocol: Protocol, Session: "s", Replica: "r", Version: "v", HeartbeatLimitMS: 8000, MaxFrameBytes: MaxFrameBytes, InlineBytes: InlineBytes,
		MaxRequests: MaxRequests, MaxSlots: MaxSlots, MaxAttempts: MaxAttempts, Replaces: "e", InUse: true, Allows: limits,
	}
	requests := []Request{
		{Type: TypeHello, Node: "n", Epoch: "e", Connection: 1, Version: "v", Check: true},
		{Type: TypeRegister, ID: 1, Profile: profile, Replaces: "e"},
		{Type: TypeHeartbeat, ID: 1, Status: freeslot.StatusOnline, Running: attempts, Resources: json.RawMessage(`{"cpu":1}`), Now: true},
		{Type: TypeHeartbeat, ID: 1},
		{Type: TypeComplete, ID: 1, Attempt: &attempt, State: freeslot.StateSucceeded, Result: json.RawMessage("1")},
		{Type: TypeComplete, ID: 1, Attempt: &attempt, State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "c", Message: "m"}, Next: NextRetry, RetryDelayMS: 5},
		{Type: TypeComplete, ID: 1, Attempt: &attempt, State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "c", Message: "m"}, Next: NextHandBack},
		{Type: TypeProgress, ID: 1, Reports: []Report{{Attempt: attempt, Seq: 1, Value: json.RawMessage("{}")}}},
		{Type: TypeSpec, ID: 1, JobID: "0-1"},
		{Type: TypeDeregister, ID: 1},
	}
	answers := []Answer{
		{Type: TypeWelcome, Welcome: welcome},
		{Type: TypeRegistered, ID: 1, Lost: []string{"0-1"}},
		{Type: TypeBeat, ID: 1, Start: attempts, Stop: attempts, Cancel: attempts},
		{Type: TypeBeat, ID: 1},
		{Type: TypeCompleted, ID: 1, Outcome: "completed", Begun: deliveries},
		{Type: TypeProgressed, ID: 1, Outcomes: []string{"taken", "cancel", "stale"}},
		{Type: TypeSpec, ID: 1, Tenant: "t", Job: job},
		{Type: TypeSpec, ID: 1, Large: true},
		{Type: TypeDeregistered, ID: 1, Lost: []string{"0-1"}},
		{Type: TypeJobs, Jobs: deliveries},
		{Type: TypeCancel, Attempts: attempts},
		{Type: TypeSync},
		{Type: TypeGoaway, Reason: "r"},
		{Type: TypeError, ID: 1, Code: CodeNodeInUse, Message: "m", Field: "f", RetryAfterMS: 1},
	}
	seen := map[string]map[string]bool{}
	check := func(message any, suffix string, left map[string]bool) {
		text, err := Append(nil, message)
		if err != nil {
			t.Fatal(err)
		}
		var value map[string]any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		name, _ := value["type"].(string)
		if name == string(TypeSpec) {
			name += suffix
		}
		if err := d.Validate(d.Payload(name), value); err != nil {
			t.Errorf("%s: %v; want no error", text, err)
		}
		d.Note(seen, name, d.Payload(name), value)
		for field := range value {
			delete(left, field)
		}
	}
	left := fields(reflect.TypeFor[Request]())
	for i := range requests {
		check(&requests[i], "", left)
	}
	leftOfAnswers := fields(reflect.TypeFor[Answer]())
	for i := range answers {
		check(&answers[i], "_answer", leftOfAnswers)
	}
	maps.Copy(left, leftOfAnswers)
	for field := range left {
		t.Errorf("no message here has the field %s", field)
	}
	for schema, properties := range seen {
		for name, used := range properties {
			if !used {
				t.Errorf("%s.%s is on the page and never sent", schema, name)
			}
		}
	}
	for name, bad := range map[string]string{
		"hello":     `{"type":"hello","node":"n","epoch":"e","connection":0}`,
		"heartbeat": `{"type":"heartbeat","id":1,"status":"drained"}`,
		"complete":  `{"type":"complete","id":1,"attempt":"0-1","state":"succeeded"}`,
		"jobs":      `{"type":"jobs","jobs":[{"attempt":"0-1:1"}]}`,
		"error":     `{"type":"error","code":"other","message":""}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(bad), &value); err != nil {
			t.Fatal(err)
		}
		if d.Validate(d.Payload(name), value) == nil {
			t.Errorf("the page allows %s", bad)
		}
	}
}

// fields are the names in JSON of a struct's fields, those of embedded ones included.
func fields(typ reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(typ) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}
