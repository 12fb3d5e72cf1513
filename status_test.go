package freeslot_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/freeslot/freeslot"
)

func TestSupervisionIsValidated(t *testing.T) {
	t.Parallel()
	for _, good := range []freeslot.Job{
		{Service: "a"},
		{Service: "a", ProgressTimeoutMS: 1, OnLeaseLoss: freeslot.LeaseLossCancel},
		{Service: "a", ProgressTimeoutMS: freeslot.MaxTimeoutMS, OnLeaseLoss: freeslot.LeaseLossContinue},
	} {
		if err := good.Validate("job"); err != nil {
			t.Errorf("%+v: %v; want no error", good, err)
		}
	}
	for field, bad := range map[string][]freeslot.Job{
		"job.progress_timeout_ms": {{Service: "a", ProgressTimeoutMS: -1}, {Service: "a", ProgressTimeoutMS: freeslot.MaxTimeoutMS + 1}},
		"job.on_lease_loss":       {{Service: "a", OnLeaseLoss: "stop"}, {Service: "a", OnLeaseLoss: "CANCEL"}},
	} {
		for _, job := range bad {
			var e *freeslot.Error
			if err := job.Validate("job"); !errors.As(err, &e) || e.Field != field || e.Code != freeslot.CodeInvalidArgument {
				t.Errorf("%+v: %v, expected an error of %s", job, err, field)
			}
		}
	}
}

// TestProgressAfter: it is the order of (attempt, seq), without equals.
func TestProgressAfter(t *testing.T) {
	t.Parallel()
	rising := []freeslot.Progress{{}, {Attempt: 1, Seq: 1}, {Attempt: 1, Seq: 9}, {Attempt: 2, Seq: 1}, {Attempt: 2, Seq: 2, Value: json.RawMessage("1")}}
	for i := range rising {
		for j := range rising {
			if got := rising[i].After(&rising[j]); got != (i > j) {
				t.Errorf("%+v after %+v: %v", rising[i], rising[j], got)
			}
		}
	}
}
