package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// inlineJobs are as many jobs with the largest specs that Redis delivers.
func inlineJobs(from, n int) []cell.Dispatch {
	found := make([]cell.Dispatch, n)
	payload := json.RawMessage(`"` + strings.Repeat("x", 8000) + `"`)
	for i := range found {
		found[i] = cell.Dispatch{
			ID: "200-0", Attempt: cell.Attempt{Job: fmt.Sprintf("j%d", from+i), N: 1}, Tenant: "default",
			Job: &freeslot.Job{Service: "s", Payload: payload},
		}
	}
	return found
}

// jobs reads until so many have come, and returns how many of them have no spec.
func (p *peer) jobs(n int) (bare int) {
	p.t.Helper()
	seen := map[frame.Attempt]bool{}
	for len(seen) < n {
		var a frame.Answer
		if err := json.Unmarshal(p.read(), &a); err != nil {
			p.t.Fatal(err)
		}
		for _, d := range append(a.Jobs, a.Begun...) {
			if seen[d.Attempt] = true; d.Job == nil {
				bare++
			}
		}
	}
	return bare
}

// TestBurstOfJobs: a node gets as many jobs at once as it has slots, with specs that are together more
// than may wait for it. The agent asks for some of them later.
func TestBurstOfJobs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1,"status":"online"}`)
		p.expect(`{"type":"beat","id":1}`)
		s.cell.stream <- p.brought(inlineJobs(0, frame.MaxSlots)...)
		synctest.Wait() // the agent does not read meanwhile
		if bare := p.jobs(frame.MaxSlots); bare == 0 || bare == frame.MaxSlots {
			t.Errorf("%d jobs came without specs, expected some", bare)
		}
	})
}

// TestBurstOfEnds: large jobs end while the agent does not read, and each has many small ones begin.
func TestBurstOfEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		const ends, each = 64, 16
		s.cell.complete = func(_ context.Context, comp cell.Completion) (cell.CompletionOutcome, error) {
			var n int
			_, err := fmt.Sscanf(comp.Attempt.Job, "j%d", &n)
			comp.Begun(inlineJobs(each*n, each))
			return cell.Completed, err
		}
		p := s.connect()
		for n := range ends {
			p.send(fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"j%d:1","state":"failed","next":"hand_back"}`, n+1, n))
		}
		synctest.Wait()
		if bare := p.jobs(ends * each); bare == 0 || bare == ends*each {
			t.Errorf("%d jobs came without specs, expected some", bare)
		}
	})
}
