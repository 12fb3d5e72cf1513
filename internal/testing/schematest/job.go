package schematest

import (
	"encoding/json"

	"github.com/freeslot/freeslot"
)

// Job returns a job that has all fields.
func Job() *freeslot.Job {
	return &freeslot.Job{
		Service: "tts", Payload: json.RawMessage("1"), Slots: 2, Priority: 9, MaxAttempts: 5, TimeoutMS: 60000, RunAtMS: 5,
		IdempotencyKey: "i", ConcurrencyKey: "c", ConcurrencyLimit: 2, TraceParent: "00-x",
		AffinityKey: "k", ProgressTimeoutMS: 7, OnLeaseLoss: freeslot.LeaseLossCancel,
		Requirement: freeslot.Requirement{
			Pool: "p", PreferredPool: "q", Services: []string{"a@>=1.2 <2"}, SourceLanguage: "de", TargetLanguage: "en",
			Labels:     map[string]string{"a": "b"},
			LabelRules: []freeslot.LabelRule{{Label: "a", Operator: freeslot.LabelIn, Values: []string{"b"}}},
			Features:   []string{"f"},
		},
		Admission: &freeslot.Admission{
			Chain: "c", Version: 1, Outcome: "variant", Variant: "v", Rule: "r", Reason: "x", Observed: true, Pool: "p",
			PreferredPool: "q", AskedPool: "a", AskedPreferredPool: "b",
		},
	}
}
