package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		if bare := p.jobs(frame.MaxSlots); bare == 0 || bare > frame.MaxSlots-maxBehindSpecs {
			t.Errorf("%d jobs came without specs", bare)
		}
	})
}

// TestBurstOfEnds: large jobs end while the agent does not read, and each has many small ones begin.
func TestBurstOfEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		const ends, each = 64, 4
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

// slowReads receives 1 Mbit/s.
type slowReads struct{ net.Conn }

func (c slowReads) Read(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond) // in virtual time
	return c.Conn.Read(p[:min(len(p), 1250)])
}

// TestBurstOnSlowLine: a burst of jobs leaves a node on a slow line time for its heartbeats. Their answers
// name what still waits, which then does not follow them. The kernel's buffers, which are not here, need
// some of the time.
func TestBurstOnSlowLine(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := s.pipes.dial(ctx, network, addr)
			return slowReads{conn}, err
		}
		burst := inlineJobs(0, frame.MaxSlots)
		for i := range burst {
			burst[i].Attempt.Job = cell.NewJobID(0)
		}
		s.cell.heartbeat = func(_ context.Context, hb cell.Heartbeat, _ cell.Link) (cell.HeartbeatReply, error) {
			reply := cell.HeartbeatReply{AtMS: 100} // before the burst
			if hb.Status == freeslot.StatusDraining {
				reply.AtMS = 300
				for i := range burst {
					if !slices.Contains(hb.Running, burst[i].Attempt) {
						reply.Start = append(reply.Start, burst[i].Attempt)
					}
				}
			}
			return reply, nil
		}
		p := s.connect()
		running := []frame.Attempt{}
		beat := func(id int, status freeslot.Status) {
			t.Helper()
			text, err := frame.Append(nil, &frame.Request{Type: frame.TypeHeartbeat, ID: uint64(id), Status: status, Running: running, Now: true})
			if err != nil {
				t.Fatal(err)
			}
			p.send(string(text))
			begin := time.Now()
			for answered := false; !answered; {
				var a frame.Answer
				if err := json.Unmarshal(p.read(), &a); err != nil {
					t.Fatal(err)
				}
				for _, d := range a.Jobs {
					running = append(running, d.Attempt)
				}
				running = append(running, a.Start...)
				answered = a.Type == frame.TypeBeat
			}
			if took := time.Since(begin); took > testLimit/8*9/10 {
				t.Errorf("heartbeat %d was answered after %s", id, took)
			}
		}
		beat(1, freeslot.StatusOnline)
		s.cell.stream <- p.brought(burst...)
		synctest.Wait()
		for id := range 5 {
			beat(2+id, freeslot.StatusOnline) // carried out before
		}
		beat(7, freeslot.StatusDraining)
		if slices.SortFunc(running, func(a, b frame.Attempt) int { return strings.Compare(a.Job, b.Job) }); len(slices.Compact(running)) != frame.MaxSlots {
			t.Errorf("%d of %d jobs have come", len(running), frame.MaxSlots)
		}
		p.send(`{"type":"progress","id":8,"reports":[]}`)
		p.expect(`{"type":"progressed","id":8}`) // so nothing else came
	})
}
