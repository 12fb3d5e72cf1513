package wire

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

const wholeJob = `{"service":"tts","payload":null,"slots":2,"affinity_key":"k","priority":9,"max_attempts":5,"timeout_ms":60000,"run_at_ms":1800000000000,"idempotency_key":"i","progress_timeout_ms":5000,"on_lease_loss":"cancel","traceparent":"t","requirement":{"pool":"p","preferred_pool":"q",
	"services":["a"],"source_language":"de","target_language":"en","labels":{"a":"b"},"label_rules":[{"label":"l","operator":"in","values":["x"]}]}}`

func TestDecodeJob(t *testing.T) {
	t.Parallel()
	got, err := DecodeJob([]byte(wholeJob))
	if err != nil {
		t.Fatal(err)
	}
	var want freeslot.Job
	if err := json.Unmarshal([]byte(wholeJob), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeExplain(t *testing.T) {
	t.Parallel()
	got, limit, err := DecodeExplain([]byte(` {"service":"tts","limit":7,"slots":2,"affinity_key":"k","requirement":{"pool":"p"}} `))
	want := freeslot.Job{Service: "tts", Slots: 2, AffinityKey: "k", Requirement: freeslot.Requirement{Pool: "p"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || limit == nil || *limit != 7 {
		t.Error(diff, err, limit)
	}
	if _, limit, err = DecodeExplain([]byte(`{"service":"tts"}`)); err != nil || limit != nil {
		t.Error(err, limit)
	}
}

// A body says which field is wrong and what was expected, as a frame does.
func TestBodyRefusals(t *testing.T) {
	t.Parallel()
	type refusal struct{ field, message string }
	both := map[string]refusal{
		`{"service":5}`:                      {"job.service", "job.service is a number, expected a string"},
		`{"paylod":1}`:                       {"job.paylod", "job.paylod is not a known field"},
		`{"service":"a","service":"b"}`:      {"job.service", "job.service is given twice"},
		`{"service":null}`:                   {"job.service", "job.service is null, expected a string"},
		`{"requirement":null}`:               {"job.requirement", "job.requirement is null, expected an object"},
		`{"slots":1.5}`:                      {"job.slots", `job.slots is "1.5", expected an integer`},
		`{"requirement":{"labels":{"a":1}}}`: {"job.requirement.labels.a", "job.requirement.labels.a is a number, expected a string"},
		`{"requirement":{"label_rules":[{"label":"a"},{"x":1}]}}`: {"job.requirement.label_rules[1].x", "job.requirement.label_rules[1].x is not a known field"},
		`{"requirement":{"labels":{"a":"1","a":"2"}}}`:            {"job.requirement.labels.a", "job.requirement.labels.a is given twice"},
		`null`:                   {"job", "job is null, expected an object"},
		`[]`:                     {"job", "job is an array, expected an object"},
		`{`:                      {"job", "job is not valid JSON: expected a member's name in double quotes at byte 1"},
		`{"service":"a"} 1`:      {"job", "job is followed by further data at byte 16, expected one JSON value"},
		"{\"service\":\"\xff\"}": {"job", "job is not valid UTF-8"},
	}
	check := func(content string, want refusal, err *freeslot.Error) {
		t.Helper()
		if err == nil || err.Code != freeslot.CodeInvalidArgument || err.Field != want.field || err.Message != want.message {
			t.Errorf("%s: got %+v, want %+v", content, err, want)
		}
	}
	for content, want := range both {
		_, err := DecodeJob([]byte(content))
		check(content, want, err)
		_, _, err = DecodeExplain([]byte(content))
		check(content, want, err)
	}
	_, err := DecodeJob([]byte("{\"payload\":\"\xff\"}"))
	check("payload", refusal{"job.payload", "job.payload is not valid UTF-8"}, err)
	for content, want := range map[string]refusal{
		`{"priority":"high"}`:             {"job.priority", "job.priority is a string, expected an integer"},
		`{"priority":1,"priority":1}`:     {"job.priority", "job.priority is given twice"},
		`{"max_attempts":1.5}`:            {"job.max_attempts", `job.max_attempts is "1.5", expected an integer`},
		`{"timeout_ms":null}`:             {"job.timeout_ms", "job.timeout_ms is null, expected an integer"},
		`{"timeout_ms":1,"timeout_ms":2}`: {"job.timeout_ms", "job.timeout_ms is given twice"},
	} {
		_, err := DecodeJob([]byte(content))
		check(content, want, err)
	}
	_, err = DecodeJob([]byte(`{"limit":1}`))
	check("limit", refusal{"job.limit", "job.limit is not a known field"}, err)
	for content, want := range map[string]refusal{
		`{"limit":"1"}`:              {"limit", "limit is a string, expected an integer"},
		`{"limit":null}`:             {"limit", "limit is null, expected an integer"},
		`{"limit":1,"limit":1}`:      {"limit", "limit is given twice"},
		`{"payload":1}`:              {"job.payload", "job.payload is not a known field"},
		`{"priority":1}`:             {"job.priority", "job.priority is not a known field"},
		`{"max_attempts":1}`:         {"job.max_attempts", "job.max_attempts is not a known field"},
		`{"run_at_ms":1}`:            {"job.run_at_ms", "job.run_at_ms is not a known field"},
		`{"idempotency_key":"a"}`:    {"job.idempotency_key", "job.idempotency_key is not a known field"},
		`{"progress_timeout_ms":1}`:  {"job.progress_timeout_ms", "job.progress_timeout_ms is not a known field"},
		`{"on_lease_loss":"cancel"}`: {"job.on_lease_loss", "job.on_lease_loss is not a known field"},
		`{"timeout_ms":1}`:           {"job.timeout_ms", "job.timeout_ms is not a known field"},
		`{"limit":1,"slots":"x"}`:    {"job.slots", "job.slots is a string, expected an integer"},
	} {
		_, _, err := DecodeExplain([]byte(content))
		check(content, want, err)
	}
}

// FuzzDecodeJob: what is accepted, and is valid as a whole, encoding/json reads the same.
func FuzzDecodeJob(f *testing.F) {
	f.Add([]byte(wholeJob))
	f.Add([]byte(`{"service":"tts","limit":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		job, refused := DecodeJob(data)
		part, limit, refusedPart := DecodeExplain(data)
		if refusedPart == nil && limit == nil && (refused != nil || !cmp.Equal(job, part)) {
			t.Fatalf("%+v %+v %v", job, part, refused)
		}
		if refused != nil {
			if refused.Field == "" || refused.Message == "" {
				t.Fatalf("refused without a reason: %+v", refused)
			}
			return
		}
		if job.Validate("job") != nil {
			return
		}
		var want freeslot.Job
		if err := freeslot.DecodeStrict("job", data, &want); err != nil {
			t.Fatalf("accepted what is no job: %v", err)
		}
		// An empty list and none are the same.
		a, _ := json.Marshal(job)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Fatalf("%s\n%s", a, b)
		}
	})
}
