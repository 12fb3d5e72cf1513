package wire

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

const wholeJob = `{"service":"tts","payload":null,"slots":2,"affinity_key":"k","priority":9,"max_attempts":5,"timeout_ms":60000,"run_at_ms":1800000000000,"idempotency_key":"i","progress_timeout_ms":5000,"on_lease_loss":"cancel","traceparent":"t","requirement":{"pool":"p","preferred_pool":"q",
	"services":["a"],"source_language":"de","target_language":"en","labels":{"a":"b"},"label_rules":[{"label":"l","operator":"in","values":["x"]}],"features":["f"]}}`

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

// FuzzDecodeJob: encoding/json reads accepted, valid jobs the same.
func FuzzDecodeJob(f *testing.F) {
	f.Add([]byte(wholeJob))
	f.Add([]byte(`{"service":"tts","limit":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		job, refused := DecodeJob(data)
		part, limit, refusedPart := DecodeExplain(data)
		if refusedPart == nil && limit == nil && (refused != nil || !cmp.Equal(job, part)) {
			t.Fatalf("%+v %+v %v; want refusedPart != nil or limit != nil or (refused == nil and cmp.Equal(job, part))", job, part, refused)
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
			t.Fatalf("%s\n%s; want string(a) == string(b)", a, b)
		}
	})
}
