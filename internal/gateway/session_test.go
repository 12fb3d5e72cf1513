package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// jobID is an id that the cell would take.
const jobID = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"

func TestSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.cell.link = func() (cell.NodeLink, error) { return cell.NodeLink{Epoch: "e0", Alive: false}, nil }
		s.cell.register = func(n freeslot.Node, e cell.Epoch, l cell.Link, replaces cell.Epoch) (cell.Registration, error) {
			if n.ID != "gpu-1" || n.MaxConcurrency != 2 || e != "e1" || replaces != "e0" {
				t.Errorf("registers %+v in %s, replaces %s", n, e, replaces)
			}
			if l.Connection != 3 || l.Stream != "r-1" || l.Token != "gpu" || l.Replica != "r-1" || l.Version != "0.4" || l.Session == "" {
				t.Errorf("link %+v", l)
			}
			return cell.Registration{Lost: []string{"a"}}, nil
		}
		s.cell.heartbeat = func(_ context.Context, hb cell.Heartbeat, _ cell.Link) (cell.HeartbeatReply, error) {
			if hb.Node != "gpu-1" || hb.Epoch != "e1" || hb.Status != "draining" || len(hb.Running) != 1 || hb.Running[0].N != 2 || !hb.Now || string(hb.Resources) != `{"x":1}` {
				t.Errorf("heartbeat %+v", hb)
			}
			return cell.HeartbeatReply{AtMS: 100, Start: []cell.Attempt{{Job: "a", N: 1}}, Stop: []cell.Attempt{{Job: "b", N: 2}}}, nil
		}
		s.cell.complete = func(_ context.Context, c cell.Completion) (cell.CompletionOutcome, error) {
			if c.Node != "gpu-1" || c.Epoch != "e1" || c.Attempt != (cell.Attempt{Job: jobID, N: 2}) || c.Next != cell.Retry || c.RetryDelay != 5*time.Millisecond {
				t.Errorf("completion %+v", c)
			}
			c.Begun([]cell.Dispatch{{Attempt: cell.Attempt{Job: "next", N: 1}, Tenant: "acme", Job: &freeslot.Job{Service: "tts"}}})
			return cell.Completed, nil
		}
		s.cell.progress = func(_, _ string, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error) {
			if len(reports) != 3 || reports[1].Seq != 8 || string(reports[1].Value) != `"<"` {
				t.Errorf("reports %+v", reports)
			}
			return []cell.ProgressOutcome{cell.ProgressTaken, cell.ProgressCancel, cell.ProgressStale}, nil
		}
		s.cell.spec = func(node, epoch, id string) (*freeslot.Job, string, error) {
			if node != "gpu-1" || epoch != "e1" {
				t.Errorf("spec for %s in %s", node, epoch)
			}
			payload := `"` + strings.Repeat("x", map[string]int{"large": frame.InlineBytes}[id]) + `"`
			return &freeslot.Job{Service: "tts", Payload: json.RawMessage(payload)}, "acme", nil
		}
		s.cell.deregister = func(node, epoch string) ([]string, error) { return []string{node, epoch}, nil }

		p := s.dial("gpu", false)
		p.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":3,"version":"0.4","mood":"good"}`)
		p.expect(`{"type":"welcome","protocol":"freeslot.node.v1","session":"…","replica":"r-1","version":"v1","heartbeat_limit_ms":8000,` +
			`"max_frame_bytes":524288,"inline_bytes":65536,"max_requests":256,"max_slots":1024,"max_attempts":2048,"replaces":"e0","allows":{"token":"gpu","nodes":["gpu-*"]}}`)
		p.send(`{"type":"register","id":1,"replaces":"e0","profile":{"node_id":"other","max_concurrency":2,"installed_services":[],"capabilities":{}}}`)
		p.expect(`{"type":"registered","id":1,"lost":["a"]}`)
		p.send(`[{"type":"heartbeat","id":2,"status":"draining","running":["b:2"],"resources":{"x":1},"now":true}]`)
		p.expect(`{"type":"beat","id":2,"start":["a:1"],"stop":["b:2"]}`)
		s.mu.Lock()
		p.session = slices.Collect(maps.Keys(s.live))[0]
		s.mu.Unlock()
		s.cell.stream <- p.brought(
			cell.Dispatch{ID: "99-5", Attempt: cell.Attempt{Job: "old", N: 1}},
			cell.Dispatch{ID: "100-0", Attempt: cell.Attempt{Job: "j", N: 1}, Tenant: "acme", Job: &freeslot.Job{Service: "tts"}},
			cell.Dispatch{ID: "100-0", Attempt: cell.Attempt{Job: "k", N: 2}, Tenant: "acme"},
			cell.Dispatch{ID: "101-0", Attempt: cell.Attempt{Job: "j", N: 1}, Cancel: true},
			cell.Dispatch{ID: "101-1", Attempt: cell.Attempt{Job: "l", N: 1}, Tenant: "acme"},
		)
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:1","tenant":"acme","job":{"service":"tts"…}},{"attempt":"k:2","tenant":"acme"}]}`)
		p.expect(`{"type":"cancel","attempts":["j:1"]}`)
		p.expect(`{"type":"jobs","jobs":[{"attempt":"l:1","tenant":"acme"}]}`)
		p.send(`{"type":"complete","id":3,"attempt":"` + jobID + `:2","state":"failed","error":{"code":"x","message":"y"},"next":"retry","retry_delay_ms":5}`)
		p.expect(`{"type":"completed","id":3,"outcome":"completed","begun":[{"attempt":"next:1","tenant":"acme","job":{"service":"tts"…}}]}`)
		p.send(`{"type":"progress","id":4,"reports":[{"attempt":"j:1","seq":7,"value":1},{"attempt":"k:2","seq":8,"value":"<"},{"attempt":"l:1","seq":1,"value":1}]}`)
		p.expect(`{"type":"progressed","id":4,"outcomes":["taken","cancel","stale"]}`)
		p.send(`{"type":"spec","id":5,"job_id":"small"}`)
		p.expect(`{"type":"spec","id":5,"tenant":"acme","job":{"service":"tts","payload":""…}}`)
		p.send(`{"type":"spec","id":6,"job_id":"large"}`)
		p.expect(`{"type":"spec","id":6,"large":true}`)
		p.send(`{"type":"deregister","id":7}`)
		p.expect(`{"type":"deregistered","id":7,"lost":["gpu-1","e1"]}`)
		if err := p.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for name, want := range map[string]float64{
			"agents": 0, "tokens": 3, "connects_total reconnect": 1, "closed_total agent_closed": 1, "stale_total progress": 1,
			"deliveries_total old": 1, "deliveries_total sent": 4, "requests_total ok heartbeat": 1, "frames_total in": 8, "refused_total": 0,
		} {
			parts := strings.Fields(name)
			if got := s.metric("freeslot_gateway_"+parts[0], parts[1:]...); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// TestRoundTrip: a heartbeat shows the last ping's time.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		links := make(chan cell.Link, 10)
		s.cell.heartbeat = func(_ context.Context, hb cell.Heartbeat, l cell.Link) (cell.HeartbeatReply, error) {
			if hb.Read != "" || hb.Resources != nil {
				t.Errorf("heartbeat %+v", hb)
			}
			links <- l
			return cell.HeartbeatReply{AtMS: 100}, nil
		}
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1,"resources":null}`)
		p.expect(`{"type":"beat","id":1}`)
		s.mu.Lock()
		s.live[p.session].roundTrip.Store(int64(30 * time.Millisecond))
		s.mu.Unlock()
		p.send(`{"type":"heartbeat","id":2}`)
		p.expect(`{"type":"beat","id":2}`)
		if (<-links).RoundTrip != 0 || (<-links).RoundTrip != 30*time.Millisecond {
			t.Error("the round trip is not in the link")
		}
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.cfg.MaxAgents = 1
		s.connect() // takes the only place
		s.cell.link = func() (cell.NodeLink, error) {
			return cell.NodeLink{Epoch: "e0", Alive: true, Link: cell.Link{Token: "other"}}, nil
		}
		p := s.dial("two", false)
		p.send(`{"type":"hello","node":"gpu-1","epoch":"e2","connection":1,"check":true}`)
		p.expect(`{"type":"welcome","protocol":"freeslot.node.v1","session":"","replica":"r-1",…"in_use":true,"allows":{"token":"two","nodes":["gpu-1"],"slots":2}}`)
		p.ends(websocket.StatusNormalClosure)
		synctest.Wait()
		if got := s.metric("freeslot_gateway_agents"); got != 1 {
			t.Errorf("%v agents", got)
		}
	})
}

// TestReplaces: what a welcome says of the node's record.
func TestReplaces(t *testing.T) {
	t.Parallel()
	h := &Handler{}
	for _, c := range []struct {
		known    cell.NodeLink
		replaces string
		inUse    bool
	}{
		{cell.NodeLink{}, "", false},
		{cell.NodeLink{Epoch: "e1", Alive: true, Link: cell.Link{Token: "gpu"}}, "e1", false},
		{cell.NodeLink{Epoch: "e0", Alive: true, Link: cell.Link{Token: "gpu"}}, "e0", false},
		{cell.NodeLink{Epoch: "e1", Alive: true, Link: cell.Link{Token: "other"}}, "", true},
		{cell.NodeLink{Epoch: "e1", Alive: true}, "", true}, // a direct agent
		{cell.NodeLink{Epoch: "e1", Link: cell.Link{Token: "other"}}, "e1", false},
		{cell.NodeLink{Epoch: "e0", Alive: true, Link: cell.Link{Token: "other"}}, "", true},
		{cell.NodeLink{Epoch: "e0", Alive: true}, "", true}, // a direct agent
		{cell.NodeLink{Epoch: "e0", Link: cell.Link{Token: "other"}}, "e0", false},
		{cell.NodeLink{Epoch: cell.ImportEpoch, Alive: true}, cell.ImportEpoch, false},
	} {
		s := &session{handler: h, token: Token{Name: "gpu"}, epoch: "e1"}
		if w := s.welcome(&c.known); w.Replaces != c.replaces || w.InUse != c.inUse {
			t.Errorf("%+v: replaces %q, in use %v", c.known, w.Replaces, w.InUse)
		}
	}
}

// TestForeignNode: who knows the epoch of a node that lives under another token gets nothing of it.
func TestForeignNode(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		known := cell.NodeLink{Epoch: "e1", Alive: true, Link: cell.Link{Token: "other"}}
		s.cell.link = func() (cell.NodeLink, error) { return known, nil }
		inUse := true
		s.cell.heartbeat = func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
			if inUse {
				return cell.HeartbeatReply{}, cell.ErrNodeInUse
			}
			return cell.HeartbeatReply{AtMS: 100}, nil
		}
		reached := 0
		s.cell.spec = func(string, string, string) (*freeslot.Job, string, error) {
			reached++
			return &freeslot.Job{Service: "tts"}, "t", nil
		}
		s.cell.deregister = func(string, string) ([]string, error) { reached++; return nil, nil }
		p := s.connect()
		requests := []string{
			`{"type":"spec","id":1,"job_id":"j"}`, `{"type":"deregister","id":1}`, `{"type":"progress","id":1}`,
			`{"type":"complete","id":1,"attempt":"` + jobID + `:1","state":"succeeded","result":1}`,
		}
		refused := func() {
			t.Helper()
			for _, text := range requests {
				p.send(text)
				p.expect(`{"type":"error","id":1,"code":"unavailable","message":"the node lives under another token or without a gateway…"}`)
			}
			resp := s.post(frame.SpecPath, "gpu", "gpu-1", p.session, strings.NewReader(requests[0]))
			expectRefusal(t, resp, http.StatusConflict, "stale_connection", frame.SessionHeader)
		}
		refused()
		p.send(`{"type":"heartbeat","id":2}`)
		p.expect(`{"type":"error","id":2,"code":"node_in_use",…}`)
		refused()
		if reached > 0 {
			t.Errorf("%d requests reached the node", reached)
		}
		inUse = false // the other one was silent for too long
		p.send(`{"type":"heartbeat","id":3}`)
		p.expect(`{"type":"beat","id":3}`)
		p.send(requests[0])
		p.expect(`{"type":"spec","id":1,…}`)
		expectAnswer(t, s.post(frame.SpecPath, "gpu", "gpu-1", p.session, strings.NewReader(requests[0])))
	})
}

// TestBadInput: what is no message ends the session, with a code that says when to come back.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ   websocket.MessageType
		text  string
		want  string
		close websocket.StatusCode
	}{
		"binary":       {websocket.MessageBinary, "{}", `{"type":"error","code":"invalid_argument","message":"…"}`, websocket.StatusUnsupportedData},
		"UTF-8":        {websocket.MessageText, "{\"type\":\"\xff\"}", `{"type":"error","code":"invalid_argument","message":"…"}`, websocket.StatusInvalidFramePayloadData},
		"too large":    {websocket.MessageText, strings.Repeat(" ", frame.MaxFrameBytes+1), `{"type":"error","code":"payload_too_large","message":"…"}`, websocket.StatusMessageTooBig},
		"no JSON":      {websocket.MessageText, "{", `{"type":"error","code":"invalid_argument","message":"frame is no message…","field":"frame"}`, frame.CloseDefect},
		"no attempt":   {websocket.MessageText, `{"type":"complete","id":1,"attempt":"x"}`, `{"type":"error","code":"invalid_argument","message":"…","field":"frame"}`, frame.CloseDefect},
		"unknown type": {websocket.MessageText, `{"type":"nap","id":1}`, `{"type":"error","code":"invalid_argument","message":"type is \"nap\", …","field":"type"}`, frame.CloseDefect},
		"two hellos":   {websocket.MessageText, `{"type":"hello","node":"gpu-2"}`, `{"type":"error","code":"invalid_argument","message":"…","field":"type"}`, frame.CloseDefect},
		"no id":        {websocket.MessageText, `{"type":"heartbeat"}`, `{"type":"error","code":"invalid_argument","message":"…","field":"id"}`, frame.CloseDefect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				p := s.connect()
				p.write(c.typ, c.text)
				p.expect(c.want)
				p.ends(c.close)
				synctest.Wait()
				if got := s.metric("freeslot_gateway_closed_total", "defect"); got != 1 {
					t.Errorf("%v sessions ended by a defect", got)
				}
			})
		})
	}
}

// TestRefusedRequests: a bad request is answered by code and field, and the session goes on.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"a:1",`, frame.MaxAttempts) + `"a:1"`
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		for _, c := range []struct{ text, code, field string }{
			{`{"type":"register","id":9}`, "invalid_argument", "profile"},
			{`{"type":"register","id":9,"profile":null}`, "invalid_argument", "profile"},
			{`{"type":"register","id":9,"profile":{"max_concurrency":0}}`, "invalid_argument", "profile.max_concurrency"},
			{`{"type":"register","id":9,"profile":{"max_concurrency":1025}}`, "permission_denied", "profile.max_concurrency"},
			{`{"type":"register","id":9,"replaces":"a b","profile":{"max_concurrency":1}}`, "invalid_argument", "replaces"},
			{`{"type":"heartbeat","id":9,"running":[` + many + `]}`, "invalid_argument", "running"},
			{`{"type":"heartbeat","id":9,"resources":[]}`, "invalid_argument", "resources"},
			{`{"type":"complete","id":9,"state":"succeeded"}`, "invalid_argument", "attempt"},
			{`{"type":"complete","id":9,"attempt":"a:1","state":"dead"}`, "invalid_argument", "state"},
			{`{"type":"complete","id":9,"attempt":"a:1","state":"failed","next":"never"}`, "invalid_argument", "next"},
			{`{"type":"complete","id":9,"attempt":"a:1","state":"failed","next":"retry","retry_delay_ms":-1}`, "invalid_argument", "retry_delay_ms"},
			{`{"type":"complete","id":9,"attempt":"a:1","state":"succeeded","result":"` + strings.Repeat("x", frame.InlineBytes) + `"}`, "payload_too_large", "result"},
			{`{"type":"spec","id":9,"job_id":"x"}`, "not_found", "job_id"},
		} {
			p.send(c.text)
			p.expect(`{"type":"error","id":9,"code":"` + c.code + `","message":"…","field":"` + c.field + `"}`)
		}
		p.send(`{"type":"complete","id":9,"attempt":"` + jobID + `:1","state":"succeeded","result":1}`)
		p.expect(`{"type":"completed","id":9,"outcome":"stale"}`)
		if got := s.metric("freeslot_gateway_stale_total", "complete"); got != 1 {
			t.Errorf("%v stale reports", got)
		}
	})
}

// TestCellErrors: what a cell refuses keeps its meaning; what it does not answer is unavailable.
func TestCellErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		code  string
		close websocket.StatusCode // 0: the session goes on
	}{
		{cell.ErrSuperseded, "superseded", frame.CloseSuperseded},
		{cell.ErrStaleConnection, "stale_connection", frame.CloseReplaced},
		{cell.ErrUnknownNode, "unknown_node", 0},
		{cell.ErrNodeInUse, "node_in_use", 0},
		{errors.New("redis is away"), "unavailable", 0},
		{context.DeadlineExceeded, "unavailable", 0},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(_ *testing.T, s *server) {
				err := fmt.Errorf("of node gpu-1: %w", c.err)
				s.cell.register = func(freeslot.Node, cell.Epoch, cell.Link, cell.Epoch) (cell.Registration, error) {
					return cell.Registration{}, err
				}
				s.cell.heartbeat = func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
					return cell.HeartbeatReply{}, err
				}
				s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) { return "", err }
				s.cell.progress = func(string, string, []cell.ProgressReport) ([]cell.ProgressOutcome, error) { return nil, err }
				s.cell.spec = func(string, string, string) (*freeslot.Job, string, error) { return nil, "", err }
				s.cell.deregister = func(string, string) ([]string, error) { return nil, err }
				var p *peer
				for i, text := range []string{
					`"register","profile":{"max_concurrency":1}`, `"heartbeat"`, `"complete","attempt":"` + jobID + `:1","state":"cancelled"`, `"progress"`, `"spec"`, `"deregister"`,
				} {
					if p == nil {
						p = s.connect()
					}
					p.send(fmt.Sprintf(`{"id":%d,"type":%s}`, i+1, text))
					code := c.code
					if i > 1 && errors.Is(err, cell.ErrNodeInUse) {
						code = "unavailable" // and no cell is asked
					}
					p.expect(fmt.Sprintf(`{"type":"error","id":%d,"code":"%s","message":"…"}`, i+1, code))
					if c.close != 0 {
						p.ends(c.close)
						p = nil
					}
				}
			})
		})
	}
}

// TestBounds: a second heartbeat waits for the first, at most until its deadline, and requests
// beyond the bound are refused while heartbeats are not.
func TestBounds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		release := make(chan struct{})
		s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
			<-release
			return cell.Completed, nil
		}
		under := 0
		s.cell.heartbeat = func(ctx context.Context, _ cell.Heartbeat, _ cell.Link) (cell.HeartbeatReply, error) {
			if under++; under > 1 {
				t.Error("two heartbeats are under way")
			}
			<-ctx.Done()
			under--
			return cell.HeartbeatReply{}, ctx.Err()
		}
		p := s.connect()
		for id := range frame.MaxRequests {
			p.send(fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"%s:1","state":"cancelled"}`, id+1, jobID))
		}
		p.send(`{"type":"spec","id":1000,"job_id":"x"}`)
		p.expect(`{"type":"error","id":1000,"code":"overloaded","message":"…","retry_after_ms":10}`)
		begin := time.Now()
		for id := range 3 * maxBeats {
			p.send(fmt.Sprintf(`{"type":"heartbeat","id":%d}`, 2000+id))
		}
		for range 3 * maxBeats {
			p.expect(`{"type":"error","id":20…,"code":"unavailable","message":"…"}`)
		}
		if took := time.Since(begin); took != 3*testLimit/beatParts {
			t.Errorf("%d heartbeats of %d at a time took %s", 3*maxBeats, maxBeats, took)
		}
		close(release)
		for range frame.MaxRequests {
			p.expect(`{"type":"completed",…}`)
		}
	})
}

// TestNextRequest: with the answer its request is over, so that the agent can use the place and the id.
func TestNextRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		blocked, release := make(chan struct{}, frame.MaxRequests), make(chan struct{})
		s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
			blocked <- struct{}{}
			<-release
			return cell.Completed, nil
		}
		p := s.connect()
		for id := range frame.MaxRequests - 1 {
			p.send(fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"a:1","state":"cancelled"}`, id+1))
		}
		<-blocked
		synctest.Wait() // the others wait for that call
		for range 1000 {
			p.send(`{"type":"progress","id":1000}`)
			p.expect(`{"type":"progressed","id":1000}`)
			p.send(`{"type":"heartbeat","id":1001}`)
			p.expect(`{"type":"beat","id":1001}`)
		}
		close(release)
		for range frame.MaxRequests - 1 {
			p.expect(`{"type":"completed",…}`)
		}
	})
}

// TestBytesUnderWay: few large requests reach the bound too.
func TestBytesUnderWay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		release := make(chan struct{})
		s.cell.register = func(freeslot.Node, cell.Epoch, cell.Link, cell.Epoch) (cell.Registration, error) {
			<-release
			return cell.Registration{}, nil
		}
		p := s.connect()
		const fit = maxRequestBytes / (frame.MaxFrameBytes + 1<<10)
		for id := range fit + 1 {
			p.send(fmt.Sprintf(`{"type":"register","id":%d,"profile":{"max_concurrency":1}}`, id+1))
		}
		p.expect(fmt.Sprintf(`{"type":"error","id":%d,"code":"overloaded",…}`, fit+1))
		close(release)
		for range fit {
			p.expect(`{"type":"registered",…}`)
		}
	})
}
