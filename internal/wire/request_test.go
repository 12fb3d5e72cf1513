package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

var limits = Limits{MaxPayloadBytes: 64, MaxBatch: 3, MaxFrameBytes: 1 << 20}

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		frame string
		want  Request
	}{
		{
			`{"type":"submit","id":"r1","job":{"service":"tts"}}`,
			Request{Type: TypeSubmit, ID: "r1", Jobs: []freeslot.Job{{Service: "tts"}}},
		},
		{
			` { "job" : { "slots" : 2 , "payload" : { "a" : [ "]}" , 1e3 ] } , "service" : "t\u0074s" } , "id" : "r1" , "type" : "submit" } `,
			Request{Type: TypeSubmit, ID: "r1", Jobs: []freeslot.Job{{Service: "tts", Slots: 2, Payload: []byte(`{ "a" : [ "]}" , 1e3 ] }`)}}},
		},
		{
			`{"type":"submit","id":"r2","jobs":[{"service":"a","payload":null},{"service":"b","traceparent":"00-x",` +
				`"requirement":{"pool":"p","services":["c","d"],"source_language":"de","target_language":"en","labels":{"zone":"e\"u"}}}]}`,
			Request{Type: TypeSubmit, ID: "r2", Batch: true, Jobs: []freeslot.Job{
				{Service: "a", Payload: []byte("null")},
				{Service: "b", TraceParent: "00-x", Requirement: freeslot.Requirement{
					Pool: "p", Services: []string{"c", "d"}, SourceLanguage: "de", TargetLanguage: "en", Labels: map[string]string{"zone": `e"u`},
				}},
			}},
		},
		{
			`{"type":"submit","id":"r1","job":{"service":"a","affinity_key":"u 1","requirement":{"preferred_pool":"q","services":["c@>=1.2 <2"],` +
				`"label_rules":[{"label":"gpu","operator":"in","values":["A100","H100"]},{"operator":"exists","label":"zone"}]}}}`,
			Request{Type: TypeSubmit, ID: "r1", Jobs: []freeslot.Job{{
				Service: "a", AffinityKey: "u 1", Requirement: freeslot.Requirement{
					PreferredPool: "q", Services: []string{"c@>=1.2 <2"}, LabelRules: []freeslot.LabelRule{
						{Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"A100", "H100"}},
						{Label: "zone", Operator: freeslot.LabelExists},
					},
				},
			}}},
		},
		{
			`{"type":"submit","id":"r1","job":{"timeout_ms":60000,"priority":9,"max_attempts":5,"service":"a"}}`,
			Request{Type: TypeSubmit, ID: "r1", Jobs: []freeslot.Job{{Service: "a", Priority: 9, MaxAttempts: 5, TimeoutMS: 60000}}},
		},
		{
			`{"type":"submit","id":"r1","job":{"service":"a","slots":-0,"payload":{"a":"\ud800","a":null}}}`,
			Request{Type: TypeSubmit, ID: "r1", Jobs: []freeslot.Job{{Service: "a", Payload: []byte(`{"a":"\ud800","a":null}`)}}},
		},
		{`{"type":"cancel","id":"r3","job_id":"0-1"}`, Request{Type: TypeCancel, ID: "r3", JobID: "0-1"}},
		{`{"type":"attach","id":"r4","job_id":"0-1"}`, Request{Type: TypeAttach, ID: "r4", JobID: "0-1"}},
		{`{"type":"ping","id":"r 5~"}`, Request{Type: TypePing, ID: "r 5~"}},
		{`{"\u0074ype":"ping","id":"r5"}`, Request{Type: TypePing, ID: "r5"}},
	}
	for _, tt := range tests {
		got, err := limits.DecodeRequest([]byte(tt.frame))
		if err != nil {
			t.Errorf("%s: %v; want no error", tt.frame, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.frame, diff)
		}
	}
}

func TestCheckJob(t *testing.T) {
	t.Parallel()
	tests := []struct {
		job   string
		code  freeslot.Code
		field string
	}{
		{`{"service":"tts"}`, "", ""},
		{`{}`, freeslot.CodeInvalidArgument, ".service"},
		{`{"service":"tts","payload":"` + strings.Repeat("x", 63) + `"}`, freeslot.CodePayloadTooLarge, ".payload"},
		{`{"service":"tts","payload":"` + strings.Repeat("x", 62) + `"}`, "", ""},
		{`{"service":"tts","slots":-1}`, freeslot.CodeInvalidArgument, ".slots"},
		{`{"service":"tts","requirement":{"pool":"a:b"}}`, freeslot.CodeInvalidArgument, ".requirement.pool"},
	}
	for _, tt := range tests {
		for path, frame := range map[string]string{
			"job":     `{"type":"submit","id":"r1","job":` + tt.job + `}`,
			"jobs[1]": `{"type":"submit","id":"r1","jobs":[{"service":"a"},` + tt.job + `]}`,
		} {
			r, err := limits.DecodeRequest([]byte(frame))
			if err != nil {
				t.Errorf("%s: %v; want no error", frame, err)
				continue
			}
			err = limits.CheckJob(&r, len(r.Jobs)-1)
			switch {
			case tt.code == "" && err != nil:
				t.Errorf("%s: %v", frame, err)
			case tt.code != "" && (err == nil || err.Code != tt.code || err.Field != path+tt.field):
				t.Errorf("%s: error %+v, want %s in %s", frame, err, tt.code, path+tt.field)
			}
		}
	}
}

// twin is the request as encoding/json sees it.
type twin struct {
	Type  RequestType     `json:"type"`
	ID    string          `json:"id"`
	Job   *freeslot.Job   `json:"job"`
	Jobs  []freeslot.Job  `json:"jobs"`
	JobID json.RawMessage `json:"job_id"`
}

// checkTwin compares what the decoder accepted with encoding/json. The other direction does not
// hold: encoding/json accepts more.
func checkTwin(t interface{ Fatalf(string, ...any) }, l Limits, frame []byte) {
	got, err := l.DecodeRequest(frame)
	if err != nil {
		if err.Message == "" || err.Code != freeslot.CodeInvalidArgument {
			t.Fatalf("%q: bad refusal %+v", frame, err)
		}
		return
	}
	for i := range got.Jobs {
		if l.CheckJob(&got, i) != nil {
			return
		}
	}
	dec := json.NewDecoder(bytes.NewReader(frame))
	dec.DisallowUnknownFields()
	var w twin
	if err := dec.Decode(&w); err != nil {
		t.Fatalf("%q is accepted, encoding/json has %v", frame, err)
	}
	want := Request{Type: w.Type, ID: w.ID, Jobs: w.Jobs, Batch: w.Jobs != nil}
	if w.Job != nil {
		want.Jobs = []freeslot.Job{*w.Job}
	}
	if w.JobID != nil {
		if err := json.Unmarshal(w.JobID, &want.JobID); err != nil {
			t.Fatalf("%q: %v; want no error", frame, err)
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q: (-encoding/json +decoder)\n%s", frame, diff)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"submit","id":"r1","job":{"service":"tts","payload":{"text":"hi \u00e9 \ud83d\ude00"},"requirement":{"pool":"p","services":["a"],"source_language":"de","target_language":"en","labels":{"a":"b"},"preferred_pool":"q","label_rules":[{"label":"a","operator":"in","values":["b"]}]},"affinity_key":"k","slots":1,"priority":1,"max_attempts":2,"timeout_ms":3,"run_at_ms":4,"idempotency_key":"i","progress_timeout_ms":5,"on_lease_loss":"cancel","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}`,
		`{"type":"submit","id":"r2","jobs":[{"service":"a"},{"service":"b","payload":[1,[2,{"x":null}],-1.5e+10,"\"]"]}]}`,
		`{"type":"cancel","id":"r3","job_id":"0-01ARZ3NDEKTSV4RRFFQ69G5FAV"}`,
		`{"type":"attach","id":"r4","job_id":"0-1"}`,
		`{"type":"ping","id":"r5"}`,
		`{"type":"ping","id":"r5","id":"r6"}`,
		`[{"type":"ping"}]`, `{"type":`, `{"a":{"b":[}`, `"`, "\x00", "{\"\\",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		checkTwin(t, Limits{MaxPayloadBytes: 1 << 10, MaxBatch: 10}, frame)
	})
}

// TestDecodeRequestTwin feeds the decoder mutilated good frames, which get further into it than
// noise does.
func TestDecodeRequestTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		frame := encodeRequest(genRequest(t))
		for range rapid.IntRange(0, 3).Draw(t, "mutations") {
			at := rapid.IntRange(0, len(frame)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				frame[at] = rapid.SampledFrom([]byte("{}[]\",:\\0-ntu \x01\xff")).Draw(t, "byte")
			case 1:
				frame = append(frame[:at:at], frame[at+1:]...)
			case 2:
				frame = append(frame[:at:at], frame[rapid.IntRange(0, at).Draw(t, "from"):]...)
			}
			if len(frame) == 0 {
				break
			}
		}
		checkTwin(t, Limits{MaxPayloadBytes: 1 << 20, MaxBatch: 10}, frame)
	})
}

func TestRequestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := genRequest(t)
		frame := encodeRequest(want)
		got, err := Limits{MaxPayloadBytes: 1 << 20, MaxBatch: 10}.DecodeRequest(frame)
		if err != nil {
			t.Fatalf("%s: %v; want no error", frame, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s: (-want +got)\n%s", frame, diff)
		}
	})
}

func encodeRequest(r Request) []byte {
	switch r.Type {
	case TypeSubmit:
		if r.Batch {
			return AppendSubmitBatch(nil, r.ID, r.Jobs)
		}
		return AppendSubmit(nil, r.ID, &r.Jobs[0])
	case TypeCancel:
		return AppendCancel(nil, r.ID, r.JobID)
	case TypeAttach:
		return AppendAttach(nil, r.ID, r.JobID)
	default:
		return AppendPing(nil, r.ID)
	}
}

func genRequest(t *rapid.T) Request {
	id := rapid.StringMatching(`[ -~]{1,64}`)
	r := Request{Type: rapid.SampledFrom(RequestTypes()).Draw(t, "type"), ID: id.Draw(t, "id")}
	switch r.Type {
	case TypeSubmit:
		r.Batch = rapid.Bool().Draw(t, "batch")
		n := 1
		if r.Batch {
			n = rapid.IntRange(1, 4).Draw(t, "jobs")
		}
		for range n {
			r.Jobs = append(r.Jobs, genJob(t))
		}
	case TypeCancel, TypeAttach:
		r.JobID = id.Draw(t, "job_id")
	}
	return r
}

func genJob(t *rapid.T) freeslot.Job {
	text := rapid.StringOf(rapid.Rune())
	return freeslot.Job{
		Service: text.Draw(t, "service"),
		Payload: genJSON(t),
		Requirement: freeslot.Requirement{
			Pool:           text.Draw(t, "pool"),
			Services:       rapid.SliceOfN(text, 0, 3).Draw(t, "services"),
			SourceLanguage: text.Draw(t, "source"),
			TargetLanguage: text.Draw(t, "target"),
			Labels:         rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"),
			PreferredPool:  text.Draw(t, "preferred pool"),
			Features:       rapid.SliceOfN(text, 0, 3).Draw(t, "features"),
			LabelRules: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) freeslot.LabelRule {
				return freeslot.LabelRule{
					Label: text.Draw(t, "label"), Operator: freeslot.LabelOperator(text.Draw(t, "operator")),
					Values: rapid.SliceOfN(text, 0, 2).Draw(t, "values"),
				}
			}), 0, 2).Draw(t, "label rules"),
		},
		AffinityKey:    text.Draw(t, "affinity key"),
		Slots:          rapid.IntRange(-5, 1<<40).Draw(t, "slots"),
		Priority:       rapid.IntRange(-5, 1<<40).Draw(t, "priority"),
		MaxAttempts:    rapid.IntRange(-5, 1<<40).Draw(t, "max attempts"),
		TimeoutMS:      rapid.Int64().Draw(t, "timeout"),
		RunAtMS:        rapid.Int64().Draw(t, "run at"),
		IdempotencyKey: text.Draw(t, "idempotency key"),
		ConcurrencyKey: text.Draw(t, "concurrency key"), ConcurrencyLimit: rapid.Int().Draw(t, "concurrency limit"),

		ProgressTimeoutMS: rapid.Int64().Draw(t, "progress timeout"),
		OnLeaseLoss:       freeslot.OnLeaseLoss(text.Draw(t, "on lease loss")),

		TraceParent: text.Draw(t, "traceparent"),
	}
}

func genJSON(t *rapid.T) json.RawMessage {
	if rapid.Bool().Draw(t, "absent") {
		return nil
	}
	text := rapid.StringOf(rapid.Rune())
	value := map[string]any{
		text.Draw(t, "key"): []any{text.Draw(t, "text"), rapid.Float64Range(-1e300, 1e300).Draw(t, "number"), nil, true},
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func BenchmarkDecodeRequest(b *testing.B) {
	frame := []byte(`{"type":"submit","id":"r1","job":{"service":"tts","payload":{"text":"a sentence of a usual length, which is spoken"},"requirement":{"pool":"gpu","source_language":"de"},"slots":1}}`)
	l := Limits{MaxPayloadBytes: freeslot.DefaultMaxPayloadBytes, MaxBatch: 1000}
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := l.DecodeRequest(frame)
		if err != nil || l.CheckJob(&r, 0) != nil {
			b.Fatal(err)
		}
	}
}
