package schedule

import (
	"errors"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestProblemsOfNoObject: of what is no JSON object one thing is wrong, and no field is said to be missing that may be there.
func TestProblemsOfNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"cron":"@daily","job":{"service":"x"}`, `{"cron":"@daily","job":{"service":"x"}} x`, `[]`, ``} {
		_, first := decodeChange([]byte(text))
		if first == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		var e *freeslot.Error
		if err := allProblems([]byte(text), first); !errors.As(err, &e) || len(e.Errors) != 0 {
			t.Errorf("%q: %v; want errors.As(err, &e), len(e.Errors) == 0", text, err)
		}
	}
}
