package system

import (
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAsk: fields of another commit's program are let pass, and its errors are returned.
func TestAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"jobs":90,"jobs_per_second":30.5,"ended":100,"of_a_later_commit":{}}`: "",
		`nothing`:            "invalid character",
		`{"error":"broken"}`: "broken",
	} {
		c, err := measure.StartChild(t.Context(), "generator", exec.Command("sh", "-c", "echo ready; read line; echo '"+answer+"'"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := Ask(t.Context(), c, load.Request{Loop: load.Closed, InFlight: 1, MeasureMS: 1})
		switch {
		case want == "" && (err != nil || f.Ended != 100 || f.JobsPerSecond != 30.5):
			t.Errorf("%s: got %+v, %v", answer, f, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, expected %q", answer, err, want)
		}
		if err := c.End(); err != nil {
			t.Error(err)
		}
	}
}
