package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// node connects as another node.
func (s *server) node(id string) *peer {
	s.t.Helper()
	p := s.dial("gpu", false)
	p.send(`{"type":"hello","node":"` + id + `","epoch":"e1","connection":1,"version":"0.4"}`)
	p.welcomed()
	return p
}

// beatsCell notes how many heartbeats came in one call.
type beatsCell struct {
	*fakeCell
	mu    sync.Mutex // guards calls
	calls []string
}

func (c *beatsCell) made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

func (c *beatsCell) HeartbeatsLinked(ctx context.Context, beats []cell.LinkedHeartbeat) []cell.HeartbeatResult {
	var nodes []string
	for i := range beats {
		nodes = append(nodes, beats[i].Node)
	}
	slices.Sort(nodes)
	c.mu.Lock()
	c.calls = append(c.calls, fmt.Sprint(nodes))
	c.mu.Unlock()
	return c.fakeCell.HeartbeatsLinked(ctx, beats)
}

// TestSharedHeartbeats: those of several nodes share a call unless somebody waits for one, and the error
// of one is its own.
func TestSharedHeartbeats(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		c := &beatsCell{fakeCell: s.cell}
		s.Handler.cfg.Cells = func(string) Cell { return c }
		s.cell.heartbeat = func(_ context.Context, hb cell.Heartbeat, _ cell.Link) (cell.HeartbeatReply, error) {
			if hb.Node == "gpu-2" {
				return cell.HeartbeatReply{}, errors.New("WRONGTYPE")
			}
			return cell.HeartbeatReply{AtMS: 100, Start: []cell.Attempt{{Job: hb.Node, N: 1}}}, nil
		}
		peers := map[string]*peer{}
		for _, id := range []string{"gpu-1", "gpu-2", "gpu-3"} {
			peers[id] = s.node(id)
		}
		begin := time.Now()
		for id, p := range peers {
			p.send(`{"type":"heartbeat","id":1}`)
			synctest.Wait()
			if len(c.made()) > 0 {
				t.Errorf("the heartbeat of %s did not wait", id)
			}
		}
		peers["gpu-1"].expect(`{"type":"beat","id":1,"start":["gpu-1:1"]}`)
		peers["gpu-2"].expect(`{"type":"error","id":1,"code":"unavailable","message":"…"}`)
		peers["gpu-3"].expect(`{"type":"beat","id":1,"start":["gpu-3:1"]}`)
		if took := time.Since(begin); took != beatWait {
			t.Errorf("answered after %s", took)
		}
		begin = time.Now()
		peers["gpu-1"].send(`{"type":"heartbeat","id":2}`)
		synctest.Wait()
		peers["gpu-1"].send(`{"type":"heartbeat","id":3,"now":true}`) // its own one waits still
		peers["gpu-1"].expect(`{"type":"beat","id":2,…}`)
		peers["gpu-1"].expect(`{"type":"beat","id":3,…}`)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a heartbeat that somebody waits for took %s", took)
		}
		if want := []string{"[gpu-1 gpu-2 gpu-3]", "[gpu-1]", "[gpu-1]"}; !slices.Equal(c.made(), want) {
			t.Errorf("calls of %v, expected %v", c.made(), want)
		}
	})
}

// TestSharedEnds: plain ends share a call. What it does not take is ended alone, as are the node's next
// ones while jobs begin with them.
func TestSharedEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		var calls []string
		outcome, begins := cell.SharedCompleted, false
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			calls = append(calls, "shared")
			return slices.Repeat([]cell.SharedOutcome{outcome}, len(comps)), nil
		}
		s.cell.complete = func(_ context.Context, c cell.Completion) (cell.CompletionOutcome, error) {
			calls = append(calls, "alone")
			if begins {
				c.Begun([]cell.Dispatch{{Attempt: cell.Attempt{Job: "next", N: 1}, Tenant: "acme"}})
			}
			return cell.Completed, nil
		}
		p, id := s.connect(), 0
		for _, step := range []struct {
			what, end string
			outcome   cell.SharedOutcome
			begins    bool
			calls     []string
			synced    bool
		}{
			{"plain", `"state":"succeeded","result":1`, cell.SharedCompleted, false, []string{"shared"}, false},
			{"failed for good", `"state":"failed","error":{"code":"x","message":""}`, cell.SharedCompleted, false, []string{"shared"}, false},
			{"a retry", `"state":"failed","error":{"code":"x","message":""},"next":"retry"`, cell.SharedCompleted, false, []string{"alone"}, false},
			{"cancelled", `"state":"cancelled"`, cell.SharedCompleted, false, []string{"alone"}, false},
			{"not taken", `"state":"succeeded"`, cell.SharedAlone, true, []string{"shared", "alone"}, false},
			{"a job began before", `"state":"succeeded"`, cell.SharedCompleted, true, []string{"alone"}, false},
			{"the last that waits", `"state":"succeeded"`, cell.SharedCompleted, false, []string{"alone"}, false},
			{"nothing began before", `"state":"succeeded"`, cell.SharedCompleted, false, []string{"shared"}, false},
			{"unknown", `"state":"succeeded"`, cell.SharedUnknown, false, []string{"shared", "alone"}, true},
			{"after that", `"state":"succeeded"`, cell.SharedCompleted, false, []string{"shared"}, false},
		} {
			id, calls, outcome, begins = id+1, nil, step.outcome, step.begins
			p.send(fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"%s:1",%s}`, id, jobID, step.end))
			if step.synced {
				p.expect(`{"type":"sync"}`)
			}
			want := fmt.Sprintf(`{"type":"completed","id":%d,"outcome":"completed"}`, id)
			if step.begins {
				want = fmt.Sprintf(`{"type":"completed","id":%d,"outcome":"completed","begun":[{"attempt":"next:1","tenant":"acme"}]}`, id)
			}
			if p.expect(want); !slices.Equal(calls, step.calls) {
				t.Errorf("%s: calls %v, expected %v", step.what, calls, step.calls)
			}
		}
		s.cell.shared = func(context.Context, []cell.Completion) ([]cell.SharedOutcome, error) {
			return nil, errors.New("no answer")
		}
		p.send(`{"type":"complete","id":90,"attempt":"` + jobID + `:1","state":"succeeded"}`)
		p.expect(`{"type":"error","id":90,"code":"unavailable","message":"…"}`)
	})
}

// TestEndsOfManyNodes: what comes while a call is under way shares the next one, with other nodes.
func TestEndsOfManyNodes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		var items []int
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			items = append(items, len(comps))
			time.Sleep(time.Millisecond)
			return slices.Repeat([]cell.SharedOutcome{cell.SharedCompleted}, len(comps)), nil
		}
		var peers []*peer
		for n := range 5 {
			p := s.node(fmt.Sprint("gpu-", n))
			peers = append(peers, p)
			p.send(fmt.Sprintf(`{"type":"complete","id":1,"attempt":"%s:1","state":"succeeded"}`, jobID))
			if n == 0 {
				synctest.Wait()
			}
		}
		for _, p := range peers {
			p.expect(`{"type":"completed","id":1,"outcome":"completed"}`)
		}
		if !slices.Equal(items, []int{1, 4}) {
			t.Errorf("calls of %v ends", items)
		}
		if n := s.metric("freeslot_gateway_requests_total", "ok", string(frame.TypeComplete)); n != 5 {
			t.Errorf("%v requests", n)
		}
	})
}

// TestEndsWhileRedisIsSilent: a request that no call took in time is answered. The agent repeats it after
// that, and what waits for Redis would grow with each repetition.
func TestEndsWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.cell.shared = func(ctx context.Context, _ []cell.Completion) ([]cell.SharedOutcome, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p, begin := s.connect(), time.Now()
		const ends = 250 // four calls
		for id := range ends {
			p.send(fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"%s:1","state":"succeeded"}`, id+1, jobID))
		}
		for answered := 0; answered < ends; {
			answered += bytes.Count(p.read(), []byte(`"code":"unavailable"`))
		}
		if took := time.Since(begin); took > endWait+callTimeout {
			t.Errorf("the last answer came after %s", took)
		}
		calls := &s.hub(s.cell).shared.ends
		calls.rest()
		if q := calls.queue; len(q) > 0 {
			t.Errorf("%d requests wait still", len(q))
		}
	})
}
