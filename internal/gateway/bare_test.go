package gateway

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// TestBegunComeWithTheirSpecs: if each end of a frame begins a job of 1 KB, all jobs come with their
// specs, however fast the answers queue.
func TestBegunComeWithTheirSpecs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		payload := json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
		s.cell.complete = func(_ context.Context, c cell.Completion) (cell.CompletionOutcome, error) {
			c.Begun([]cell.Dispatch{{Attempt: c.Attempt, Job: &freeslot.Job{Service: "s", Payload: payload}}})
			return cell.Completed, nil
		}
		p := s.connect()
		texts := make([]string, 64)
		for i := range texts {
			texts[i] = strings.Replace(succeeds(i+1), "succeeded", "cancelled", 1)
		}
		p.send("[" + strings.ReplaceAll(strings.Join(texts, ","), `,"result"`, `,"unknown"`) + "]")
		for range texts {
			var a frame.Answer
			if err := json.Unmarshal(p.read(), &a); err != nil || len(a.Begun) != 1 || a.Begun[0].Job == nil {
				t.Fatalf("%+v, error %v, expected a job with its spec", a, err)
			}
		}
	})
}
