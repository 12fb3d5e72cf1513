package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

func TestAppendMessages(t *testing.T) {
	t.Parallel()
	status := &freeslot.JobStatus{
		ID: "0-1", Tenant: "acme", Service: "tts", State: freeslot.StateSucceeded, Node: "n1", Attempt: 1, Slots: 2,
		Result: json.RawMessage(`{"a":1}`), SubmittedAtMS: 10, AssignedAtMS: 11, FinishedAtMS: 12,
	}
	progress := &freeslot.Progress{Attempt: 2, Seq: 3, AtMS: 4, Value: json.RawMessage(`{"done":5}`)}
	waiting := &freeslot.JobStatus{ID: "0-1", Class: "c1", State: freeslot.StateWaiting, Failures: 1, Priority: 2, DeadlineMS: 3, RunAtMS: 5, Position: 4}
	failed := &freeslot.JobStatus{ID: "0-1", State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "panic", Message: "a \"b\"\n\x01\xff"}}
	for want, got := range map[string][]byte{
		`{"type":"welcome","protocol":"freeslot.v1","session_id":"s","replica":"r","version":"v","max_payload_bytes":1,"max_batch":2,"max_frame_bytes":3}`: AppendWelcome(nil, &Welcome{Protocol: Protocol, SessionID: "s", Replica: "r", Version: "v", MaxPayloadBytes: 1, MaxBatch: 2, MaxFrameBytes: 3}),
		`{"type":"accepted","id":"r1","job_id":"0-1"}`:                        AppendAccepted(nil, "r1", NoIndex, "0-1", 0),
		`{"type":"accepted","id":"r1","index":0,"job_id":"0-1"}`:              AppendAccepted(nil, "r1", 0, "0-1", 0),
		`{"type":"accepted","id":"r1","index":0,"job_id":"0-1","position":7}`: AppendAccepted(nil, "r1", 0, "0-1", 7),
		`{"type":"status","id":"r1","job":{"job_id":"0-1","tenant":"","service":"","class":"c1","state":"waiting","node":"","attempt":0,"slots":0,"failures":1,"priority":2,"deadline_ms":3,"run_at_ms":5,"position":4,"submitted_at_ms":0,"assigned_at_ms":0}}`: AppendStatus(nil, "r1", waiting),
		`{"type":"assigned","job_id":"0-1","node":"n1","attempt":1,"assigned_at_ms":5}`:       AppendAssigned(nil, "0-1", "n1", 1, 5),
		`{"type":"progress","job_id":"0-1","attempt":2,"seq":3,"at_ms":4,"value":{"done":5}}`: AppendProgress(nil, "0-1", progress),
		`{"type":"progress","job_id":"0-1","attempt":1,"seq":1,"at_ms":0,"value":null}`:       AppendProgress(nil, "0-1", &freeslot.Progress{Attempt: 1, Seq: 1}),
		`{"type":"detached","job_id":"0-1"}`:                                                  AppendDetached(nil, "0-1"),
		`{"type":"pong","id":"r1"}`:                                                           AppendPong(nil, "r1"),
		`{"type":"goaway","reason":"stopping"}`:                                               AppendGoaway(nil, "stopping"),
		`{"type":"error","code":"internal","message":"m"}`:                                    AppendError(nil, "", NoIndex, "", &freeslot.Error{Code: freeslot.CodeInternal, Message: "m"}),
		`{"type":"error","id":"r1","index":3,"job_id":"0-1","code":"overloaded","message":"m","field":"f","retry_after_ms":2,"breakdown":{"pool":1,"service":2}}`: AppendError(nil, "r1", 3, "0-1", &freeslot.Error{Code: freeslot.CodeOverloaded, Message: "m", Field: "f", RetryAfter: 1500 * time.Microsecond, Breakdown: map[string]int{"service": 2, "pool": 1}}),
		`{"code":"not_found","message":"m"}`: AppendErrorBody(nil, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "m"}),
		`{"type":"result","job":{"job_id":"0-1","tenant":"acme","service":"tts","state":"succeeded","node":"n1","attempt":1,"slots":2,"result":{"a":1},"submitted_at_ms":10,"assigned_at_ms":11,"finished_at_ms":12}}`:                             AppendResult(nil, status),
		`{"type":"status","id":"r1","job":{"job_id":"0-1","tenant":"","service":"","state":"failed","node":"","attempt":0,"slots":0,"error":{"code":"panic","message":"a \"b\"\n\u0001` + "\ufffd" + `"},"submitted_at_ms":0,"assigned_at_ms":0}}`: AppendStatus(nil, "r1", failed),
	} {
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestStoredResultThatIsNotUTF8: a frame that is not UTF-8 would end the session of each client
// that asks for the job.
func TestStoredResultThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	s := &freeslot.JobStatus{ID: "0-1", Result: json.RawMessage("{\"a\xff\":\"b\xc3\xc3ü\"}")}
	stored := string(s.Result)
	for name, frame := range map[string][]byte{"result": AppendResult(nil, s), "status": AppendStatus(nil, "r1", s)} {
		if !utf8.Valid(frame) || !json.Valid(frame) {
			t.Errorf("%s: %q; want utf8.Valid(frame), json.Valid(frame)", name, frame)
		}
		err := DecodeMessages(frame, func(m *Message) {
			if got, want := string(m.Job.Result), "{\"a\ufffd\":\"b\ufffdü\"}"; got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		})
		if err != nil {
			t.Errorf("%s: %v; want no error", name, err)
		}
	}
	if string(s.Result) != stored {
		t.Error("the caller's result was changed")
	}
}

// A result that is no JSON, after an edit of the store by hand, must not break the frame.
func TestStoredResultThatIsNoJSON(t *testing.T) {
	t.Parallel()
	kept := "["
	frame := AppendResult([]byte(kept), &freeslot.JobStatus{ID: "0-1", Result: json.RawMessage(`{"a":`)})
	if want := kept + `{"type":"error","code":"internal","message":"internal error, see the replica's log"}`; string(frame) != want {
		t.Errorf("got  %s\nwant %s", frame, want)
	}
}

// TestStatusTwin compares the encoder with the struct's own tags.
func TestStatusTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genStatus(t)
		twin, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		if err := json.Unmarshal(twin, &want); err != nil {
			t.Fatal(err)
		}
		frame := AppendResult(nil, &s)
		if err := json.Unmarshal(frame, &got); err != nil {
			t.Fatalf("%s: %v; want no error", frame, err)
		}
		if diff := cmp.Diff(map[string]any{"type": "result", "job": want}, got); diff != "" {
			t.Fatalf("(-encoding/json +encoder)\n%s", diff)
		}
	})
}

// TestResultHasEachField: a field that JobStatus gains must be appended by hand, too.
func TestResultHasEachField(t *testing.T) {
	t.Parallel()
	s := freeslot.JobStatus{Result: json.RawMessage(`{"a":1}`)}
	for _, field := range reflect.ValueOf(&s).Elem().Fields() {
		switch field.Kind() {
		case reflect.String:
			field.SetString("x")
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		}
	}
	want := appendJSON(nil, &sentMessage{Type: TypeResult, Job: sent(&s)})
	if got := AppendResult(nil, &s); string(got) != string(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.Result = json.RawMessage(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1))
	if got := AppendResult(nil, &s); !strings.Contains(string(got), `"error"`) {
		t.Errorf("a result that is too deep is sent: %.200s", got)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(t, "messages")
		var want []Message
		frame := []byte{'['}
		for i := range n {
			if i > 0 {
				frame = append(frame, ',')
			}
			m := genMessage(t)
			want = append(want, m)
			frame = encodeMessage(frame, m)
		}
		frame = append(frame, ']')
		if n == 1 && rapid.Bool().Draw(t, "single") {
			frame = frame[1 : len(frame)-1]
		}
		var got []Message
		if err := DecodeMessages(frame, func(m *Message) { got = append(got, *m) }); err != nil {
			t.Fatalf("%s: %v; want no error", frame, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s: (-want +got)\n%s", frame, diff)
		}
	})
}

func TestDecodeMessagesIsLenient(t *testing.T) {
	t.Parallel()
	var got []Message
	frame := `[{"type":"later","news":{"a":[1,"]"]}},{"type":"result","job":{"job_id":"0-1","node":null,"result":null,"more":7},"index":null}]`
	if err := DecodeMessages([]byte(frame), func(m *Message) { got = append(got, *m) }); err != nil {
		t.Fatal(err)
	}
	want := []Message{{Type: "later", Index: NoIndex}, {Type: TypeResult, Index: NoIndex, Job: freeslot.JobStatus{ID: "0-1", Result: json.RawMessage("null")}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add([]byte(`[{"type":"accepted","id":"r1","index":0,"job_id":"0-1"},{"type":"error","code":"internal","message":"m","breakdown":{"a":1}}]`))
	f.Add([]byte(`[{"type":"accepted","id":"r1","job_id":"0-1","position":3},{"type":"status","id":"r2","job":{"state":"waiting","failures":1,"priority":2,"deadline_ms":3,"position":4}}]`))
	f.Add([]byte(`[{"type":"progress","job_id":"0-1","attempt":1,"seq":2,"at_ms":3,"value":{"a":[1]}},{"type":"status","id":"r","job":{"progress":{"attempt":1,"seq":2,"at_ms":3,"value":null}}}]`))
	f.Add([]byte(`{"type":"result","job":{"job_id":"0-1","result":[1],"error":{"code":"a","message":"b"}}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if err := DecodeMessages(frame, func(*Message) {}); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
	})
}

func TestAsError(t *testing.T) {
	t.Parallel()
	e := &freeslot.Error{Code: freeslot.CodeNotFound, Message: "m"}
	if got := AsError(errors.Join(errors.New("x"), e)); got != e {
		t.Errorf("got %v", got)
	}
	if got := AsError(errors.New("secret")); got.Code != freeslot.CodeInternal || got.Message == "secret" {
		t.Errorf("got %v", got)
	}
}

func genStatus(t *rapid.T) freeslot.JobStatus {
	text := rapid.StringOf(rapid.Rune())
	ms := rapid.Int64Range(0, 1<<52)
	s := freeslot.JobStatus{
		ID: text.Draw(t, "job_id"), Tenant: text.Draw(t, "tenant"), Service: text.Draw(t, "service"),
		Class: text.Draw(t, "class"), RunAtMS: ms.Draw(t, "run_at"),
		State: rapid.SampledFrom(freeslot.States()).Draw(t, "state"), Node: text.Draw(t, "node"),
		Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Slots: rapid.IntRange(0, 9).Draw(t, "slots"),
		Failures: rapid.IntRange(0, 9).Draw(t, "failures"), Priority: rapid.IntRange(0, 9).Draw(t, "priority"),
		DeadlineMS: ms.Draw(t, "deadline"), Position: rapid.IntRange(0, 1<<20).Draw(t, "position"),
		Result: genJSON(t), SubmittedAtMS: ms.Draw(t, "submitted"), AssignedAtMS: ms.Draw(t, "assigned"), FinishedAtMS: ms.Draw(t, "finished"),
	}
	if rapid.Bool().Draw(t, "with progress") {
		p := genProgress(t)
		s.Progress = &p
	}
	if rapid.Bool().Draw(t, "failed") {
		s.Error = &freeslot.JobError{Code: text.Draw(t, "code"), Message: text.Draw(t, "message")}
	}
	return s
}

// genProgress always has a value, because an absent one is decoded as null.
func genProgress(t *rapid.T) freeslot.Progress {
	n := rapid.Int64Range(0, 1<<52)
	p := freeslot.Progress{Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Seq: n.Draw(t, "seq"), AtMS: n.Draw(t, "at"), Value: genJSON(t)}
	if p.Value == nil {
		p.Value = json.RawMessage("null")
	}
	return p
}

func genMessage(t *rapid.T) Message {
	text := rapid.StringOf(rapid.Rune())
	m := Message{Index: NoIndex, Type: rapid.SampledFrom(MessageTypes()).Draw(t, "type")}
	id, jobID := text.Draw(t, "id"), text.Draw(t, "job_id")
	switch m.Type {
	case TypeWelcome:
		m.Welcome = Welcome{Protocol: Protocol, SessionID: id, Replica: jobID, Version: "v", MaxPayloadBytes: 1, MaxBatch: 2, MaxFrameBytes: 3}
	case TypeAccepted:
		m.ID, m.JobID, m.Index = id, jobID, rapid.IntRange(NoIndex, 5).Draw(t, "index")
		m.Position = rapid.IntRange(0, 9).Draw(t, "position")
	case TypeAssigned:
		m.JobID, m.Node, m.Attempt, m.AssignedAtMS = jobID, id, 3, rapid.Int64Range(0, 1<<52).Draw(t, "at")
	case TypeProgress:
		m.JobID, m.Progress = jobID, genProgress(t)
	case TypeResult:
		m.Job = genStatus(t)
	case TypeStatus:
		m.ID, m.Job = id, genStatus(t)
	case TypeDetached:
		m.JobID = jobID
	case TypeError:
		m.ID, m.JobID = id, jobID
		m.Error = &freeslot.Error{
			Code: freeslot.CodeOverloaded, Message: text.Draw(t, "message"), Field: text.Draw(t, "field"),
			RetryAfter: time.Duration(rapid.IntRange(0, 1e6).Draw(t, "retry")) * time.Millisecond,
			Breakdown:  rapid.MapOfN(text, rapid.IntRange(0, 9), 0, 3).Draw(t, "breakdown"),
		}
	case TypePong:
		m.ID = id
	case TypeGoaway:
		m.Reason = id
	}
	return m
}

func encodeMessage(dst []byte, m Message) []byte {
	switch m.Type {
	case TypeWelcome:
		return AppendWelcome(dst, &m.Welcome)
	case TypeAccepted:
		return AppendAccepted(dst, m.ID, m.Index, m.JobID, m.Position)
	case TypeAssigned:
		return AppendAssigned(dst, m.JobID, m.Node, m.Attempt, m.AssignedAtMS)
	case TypeProgress:
		return AppendProgress(dst, m.JobID, &m.Progress)
	case TypeResult:
		return AppendResult(dst, &m.Job)
	case TypeStatus:
		return AppendStatus(dst, m.ID, &m.Job)
	case TypeDetached:
		return AppendDetached(dst, m.JobID)
	case TypeError:
		return AppendError(dst, m.ID, m.Index, m.JobID, m.Error)
	case TypePong:
		return AppendPong(dst, m.ID)
	default:
		return AppendGoaway(dst, m.Reason)
	}
}

func BenchmarkAppendMessages(b *testing.B) {
	status := &freeslot.JobStatus{ID: "0-01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: "acme", Service: "tts", State: freeslot.StateSucceeded, Node: "node-1", Attempt: 1, Slots: 1, Result: json.RawMessage(`{"ok":true}`), SubmittedAtMS: 1, AssignedAtMS: 2, FinishedAtMS: 3}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendAccepted(buf[:0], "r1", NoIndex, status.ID, 0)
		buf = AppendAssigned(buf, status.ID, status.Node, 1, 2)
		buf = AppendResult(buf, status)
	}
}

func BenchmarkDecodeMessages(b *testing.B) {
	status := &freeslot.JobStatus{ID: "0-01ARZ3NDEKTSV4RRFFQ69G5FAV", Tenant: "acme", Service: "tts", State: freeslot.StateSucceeded, Node: "node-1", Attempt: 1, Slots: 1, Result: json.RawMessage(`{"ok":true}`), SubmittedAtMS: 1, AssignedAtMS: 2, FinishedAtMS: 3}
	frame := append([]byte{'['}, AppendAccepted(nil, "r1", NoIndex, status.ID, 0)...)
	frame = append(AppendAssigned(append(frame, ','), status.ID, status.Node, 1, 2), ',')
	frame = append(AppendResult(frame, status), ']')
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeMessages(frame, func(*Message) {}); err != nil {
			b.Fatal(err)
		}
	}
}
