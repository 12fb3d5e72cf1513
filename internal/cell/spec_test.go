package cell

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// payloads are of both ways: copied, and left to encoding/json.
var payloads = []string{
	``, `null`, `1`, `-0.5e+7`, `"text with spaces"`, `{"a":[1,2,{"b":"c"}],"d":true}`, `[]`, `{}`, `"\n\/\""`, `"ü€"`,
	`1 `, `{ "a" : 1 }`, `"<b>&"`, `"\u00fc"`, "\"\u2028\"", `[[[[[[1]]]]]]`,
}

func drawJob(t *rapid.T) *freeslot.Job {
	text := rapid.SampledFrom([]string{"", "plain", `"<&>`, "ü", "\u2028", "a b"})
	job := &freeslot.Job{Service: text.Draw(t, "service"), Payload: json.RawMessage(rapid.SampledFrom(payloads).Draw(t, "payload"))}
	if len(job.Payload) == 0 {
		job.Payload = nil
	}
	if rapid.Bool().Draw(t, "more") {
		job.AffinityKey, job.TraceParent = text.Draw(t, "affinity"), text.Draw(t, "trace")
		job.Slots, job.Priority, job.MaxAttempts = rapid.IntRange(0, 3).Draw(t, "slots"), rapid.IntRange(0, 9).Draw(t, "priority"), rapid.IntRange(0, 3).Draw(t, "attempts")
		job.TimeoutMS, job.RunAtMS = rapid.Int64Range(0, 2).Draw(t, "timeout"), rapid.Int64Range(0, 2).Draw(t, "run_at")
		job.IdempotencyKey, job.ConcurrencyKey, job.ConcurrencyLimit = text.Draw(t, "idempotency"), text.Draw(t, "concurrency"), rapid.IntRange(0, 2).Draw(t, "limit")
		job.ProgressTimeoutMS = rapid.Int64Range(0, 2).Draw(t, "progress")
	}
	if rapid.Bool().Draw(t, "requirement") {
		job.Requirement = freeslot.Requirement{Pool: text.Draw(t, "pool"), Labels: map[string]string{"b": text.Draw(t, "label"), "a": "1"}}
	}
	return job
}

// TestSpec: the text is that of encoding/json, and so is what is read of it.
func TestSpec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job := drawJob(t)
		want, err := json.Marshal(job)
		if err != nil {
			t.Fatal(err)
		}
		got, err := encodeSpec(job)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %s, %v; want %s", got, err, want)
		}
		sameSpec(t, got)
	})
	for _, payload := range []string{`{`, `01`, `{}x`, `1,"slots":9`} {
		if spec, err := encodeSpec(&freeslot.Job{Service: "a", Payload: json.RawMessage(payload)}); err == nil {
			t.Errorf("the payload %s, which is no JSON, was encoded: %s", payload, spec)
		}
	}
}

func sameSpec(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, spec []byte,
) {
	t.Helper()
	var got, want freeslot.Job
	wantErr := json.Unmarshal(bytes.Clone(spec), &want)
	if err := decodeSpec(bytes.Clone(spec), &got); (err == nil) != (wantErr == nil) {
		t.Fatalf("%s: got %v, want %v", spec, err, wantErr)
	}
	if diff := cmp.Diff(want, got); wantErr == nil && diff != "" {
		t.Fatalf("%s (-want +got):\n%s", spec, diff)
	}
}

func FuzzSpec(f *testing.F) {
	for _, payload := range payloads {
		f.Add([]byte(`{"service":"a","payload":` + payload + `}`))
	}
	for _, spec := range []string{
		`{"service":"a"}`, `{"service":"a","payload":1,}`, `{"service":"a","payload":1,"slots":2}`, `{"service":"a","payload":1,"payload":"longer"}`,
		`{"service":"a","payload":1,"Service":"b"}`, `{"service":"\u0061","payload":1}`, `{"service":1,"payload":1}`, `{"service":"a","payload":1}}`,
		`{"service":"a","payload":1,"slots":"x"}`, `{"service":"a\nb","payload":1}`, "{\"service\":\"\xff\",\"payload\":1}", `{"service":"a","payload":`,
		`{"service":"a","payload":01}`, `{"service":"a","payload":1 ,"slots":1}`, `{"service":"a","payload":1, "slots":1}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, spec []byte) { sameSpec(t, spec) })
}

func BenchmarkSpec(b *testing.B) {
	job := &freeslot.Job{Service: "echo", Payload: json.RawMessage(`{"text":"` + string(bytes.Repeat([]byte("words of it "), 20)) + `"}`)}
	full := *job
	full.TimeoutMS, full.Requirement = 60_000, freeslot.Requirement{Pool: "gold", Labels: map[string]string{"gpu": "a100"}}
	for name, job := range map[string]*freeslot.Job{"bare": job, "full": &full} {
		b.Run("encode/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := encodeSpec(job); err != nil {
					b.Fatal(err)
				}
			}
		})
		spec, err := encodeSpec(job)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("decode/"+name, func(b *testing.B) {
			for b.Loop() {
				if err := decodeSpec(spec, new(freeslot.Job)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("twin/encode/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := json.Marshal(job); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("twin/decode/"+name, func(b *testing.B) {
			for b.Loop() {
				if err := json.Unmarshal(spec, new(freeslot.Job)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
