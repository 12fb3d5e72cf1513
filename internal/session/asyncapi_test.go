package session

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/schematest"
	"github.com/freeslot/freeslot/internal/wire"
)

const asyncAPIPage = "../../docs/asyncapi.yaml"

func TestAsyncAPIRefs(t *testing.T) {
	t.Parallel()
	pagetest.ReadDocument(t, asyncAPIPage).CheckRefs(t)
}

// TestSchemaExamples: the examples of the page are messages of the schemas.
func TestSchemaExamples(t *testing.T) {
	t.Parallel()
	defs := "schema/client-frames.json#/$defs/"
	pagetest.ReadDocument(t, asyncAPIPage).CheckExamples(t, protocolPage, defs+"ClientMessage", defs+"ReplicaMessage")
}

// TestAsyncAPINames: the page and the code have the same types, codes and states.
func TestAsyncAPINames(t *testing.T) {
	t.Parallel()
	d := pagetest.ReadDocument(t, asyncAPIPage)
	var want []string
	for _, typ := range wire.RequestTypes() {
		want = append(want, string(typ))
	}
	for _, typ := range wire.MessageTypes() {
		want = append(want, string(typ))
	}
	pagetest.SameNames(t, "message types", want, slices.Collect(maps.Keys(pagetest.Object(d.At("#/components/messages")))))
	for _, name := range want {
		if got := pagetest.Object(pagetest.Object(d.Payload(name)["properties"])["type"])["const"]; got != name {
			t.Errorf("message %s has type %v", name, got)
		}
	}
	for name, want := range map[string][]string{
		"ErrorMessage/properties/code/enum":  pagetest.Constants(t, "../../error.go", "Code"),
		"JobError/properties/code/examples":  pagetest.Constants(t, "../../status.go", "JobError"),
		"JobStatus/properties/state/enum":    pagetest.Constants(t, "../../status.go", "State"),
		"PastAttempt/properties/ended/enum":  pagetest.Constants(t, "../../status.go", "Attempt"),
		"Job/properties/on_lease_loss/enum":  pagetest.Constants(t, "../../job.go", "LeaseLoss"),
		"LabelRule/properties/operator/enum": pagetest.Constants(t, "../../label_rule.go", "Label"),
	} {
		pagetest.SameNames(t, name, want, d.List("schema/client-frames.json#/$defs/"+name))
	}
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
	names := slices.Concat(pagetest.Constants(t, "../../error.go", "Code"), pagetest.Constants(t, "../../status.go", "JobError"), []string{
		"1000", "1001", "1003", "1007", "1009", strconv.Itoa(wire.CloseRights), strconv.Itoa(wire.CloseSlowClient), strconv.Itoa(wire.CloseSilentClient),
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

// TestAsyncAPISchemas: the codec's output matches the page, and uses all of it.
func TestAsyncAPISchemas(t *testing.T) {
	t.Parallel()
	d := pagetest.ReadDocument(t, asyncAPIPage)
	job := schematest.Job()
	bare := &freeslot.Job{Service: "tts"}
	status := &freeslot.JobStatus{
		Class: "0123456789abcdef", RunAtMS: 4,
		ID: "0-1", Tenant: "t", Service: "tts", State: freeslot.StateFailed, Node: "n", Attempt: 1, Slots: 1,
		Result: json.RawMessage("{}"), Error: &freeslot.JobError{Code: "c", Message: "m"},
		Progress: &freeslot.Progress{Attempt: 1, Seq: 2, AtMS: 3, Value: json.RawMessage("4")},
		Failures: 1, Priority: 9, DeadlineMS: 4, Position: 3, SubmittedAtMS: 1, AssignedAtMS: 2, FinishedAtMS: 3,
		Attempts: []freeslot.PastAttempt{{Attempt: 1, Node: "n", BeganAtMS: 1, EndedAtMS: 2, Ended: freeslot.AttemptFailed, Code: "c"}},
		Schedule: "s", RequeuedAs: "0-2", RequeuedFrom: "0-0",
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
			t.Fatalf("%s: %v; want no error", frame, err)
		}
		name, _ := value["type"].(string)
		schema := d.Payload(name)
		if err := d.Validate(schema, value); err != nil {
			t.Errorf("%s: %v; want no error", frame, err)
		}
		d.Note(seen, name, schema, value)
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
		if d.Validate(d.Payload(name), value) == nil {
			t.Errorf("the page allows %s", bad)
		}
	}
}
