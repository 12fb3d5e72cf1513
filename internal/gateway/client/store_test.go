package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// id returns attempt 1 of the numbered job.
func id(n int) cell.Attempt { return cell.Attempt{Job: fmt.Sprintf("job-%d", n), N: 1} }

func framed(n int) frame.Attempt { return frame.Attempt(id(n)) }

// TestGatewayCalls: what each method sends, and what it makes of the answer.
func TestGatewayCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		g.Replaces, g.Limit = "before", 6*time.Second
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		if h := peer.Hello; h.Node != "node-1" || h.Epoch != "epoch-1" || h.Connection != 1 || h.Version == "" || h.Check || peer.Token != "Bearer secret" {
			t.Errorf("%+v, %s", h, peer.Token)
		}
		call := func(fn func() error, want frame.Type, answer *frame.Answer) (req *frame.Request, err error) {
			t.Helper()
			done := gatewaytest.Async(fn)
			req = peer.Next(want)
			answer.ID = req.ID
			peer.Send(answer)
			return req, <-done
		}

		var reg cell.Registration
		req, err := call(func() (err error) {
			reg, err = s.Register(t.Context(), freeslot.Node{ID: "node-1", MaxConcurrency: 3}, "epoch-1")
			return err
		}, frame.TypeRegister, &frame.Answer{Type: frame.TypeRegistered, Lost: []string{"j"}})
		if err != nil || req.Replaces != "before" || req.Profile.MaxConcurrency != 3 || reg.HeartbeatLimit != 6*time.Second || len(reg.Lost) != 1 {
			t.Errorf(`%+v, %+v, %v; want no error, req.Replaces == "before", req.Profile.MaxConcurrency == 3, reg.HeartbeatLimit == 6*time.Second, len(reg.Lost) == 1`, req, reg, err)
		}
		select {
		case <-s.beats:
		default:
			t.Error("no heartbeat was requested after the registration")
		}
		req, err = call(func() (err error) {
			_, err = s.Register(t.Context(), freeslot.Node{ID: "node-1", MaxConcurrency: 3}, "epoch-1")
			return err
		}, frame.TypeRegister, &frame.Answer{Type: frame.TypeRegistered})
		if err != nil || req.Replaces != "epoch-1" {
			t.Errorf("%+v, %v: a registered node replaces no other epoch", req, err)
		}

		var reply cell.HeartbeatReply
		req, err = call(func() (err error) {
			reply, err = s.Heartbeat(t.Context(), cell.Heartbeat{
				Status: freeslot.StatusDraining, Running: []cell.Attempt{id(1)}, Resources: json.RawMessage(`{"a":1}`), Read: "1-0", Now: true,
			})
			return err
		}, frame.TypeHeartbeat, &frame.Answer{
			Type: frame.TypeBeat, Start: []frame.Attempt{framed(2)}, Stop: []frame.Attempt{framed(3)}, Cancel: []frame.Attempt{framed(4)},
		})
		want := cell.HeartbeatReply{Start: []cell.Attempt{id(2)}, Stop: []cell.Attempt{id(3)}, Cancel: []cell.Attempt{id(4)}}
		if err != nil || !reflect.DeepEqual(reply, want) || req.Status != freeslot.StatusDraining || !reflect.DeepEqual(req.Running, []frame.Attempt{framed(1)}) ||
			string(req.Resources) != `{"a":1}` || !req.Now {
			t.Errorf("%+v, %+v, %v; want no error, reflect.DeepEqual(reply, want), req.Status == freeslot.StatusDraining, reflect.DeepEqual(req.Running, []frame.Attempt{framed(1)}), string(req.Resources) == `{\"a\":1}`, req.Now", req, reply, err)
		}

		var begun []cell.Dispatch
		var outcome cell.CompletionOutcome
		req, err = call(func() (err error) {
			outcome, err = s.Complete(t.Context(), cell.Completion{
				Attempt: id(1), State: freeslot.StateFailed, Error: &freeslot.JobError{Code: "c", Message: "m"}, Next: cell.Retry, RetryDelay: time.Second,
				Begun: func(d []cell.Dispatch) { begun = d },
			})
			return err
		}, frame.TypeComplete, &frame.Answer{
			Type: frame.TypeCompleted, Outcome: "completed_before",
			Begun: []frame.Delivery{{Attempt: framed(5), Tenant: "acme", Job: &freeslot.Job{Service: "s"}}},
		})
		if err != nil || outcome != cell.CompletedBefore || *req.Attempt != framed(1) || req.State != freeslot.StateFailed || req.Error.Message != "m" ||
			req.Next != frame.NextRetry || req.RetryDelayMS != 1000 {
			t.Errorf(`%+v, %s, %v; want no error, outcome == cell.CompletedBefore, *req.Attempt == framed(1), req.State == freeslot.StateFailed, req.Error.Message == "m", req.Next == frame.NextRetry, req.RetryDelayMS == 1000`, req, outcome, err)
		}
		if len(begun) != 1 || begun[0].Attempt != id(5) || begun[0].Tenant != "acme" || begun[0].Job.Service != "s" || begun[0].ID != "" {
			t.Errorf("begun %+v", begun)
		}
		req, err = call(func() (err error) {
			outcome, err = s.Complete(t.Context(), cell.Completion{Attempt: id(1), State: freeslot.StateSucceeded, Result: json.RawMessage(`"r"`), Next: cell.HandBack})
			return err
		}, frame.TypeComplete, &frame.Answer{Type: frame.TypeCompleted, Outcome: "stale"})
		if err != nil || outcome != cell.CompletedStale || string(req.Result) != `"r"` || req.Next != frame.NextHandBack {
			t.Errorf("%+v, %s, %v; want no error, outcome == cell.CompletedStale, string(req.Result) == `\"r\"`, req.Next == frame.NextHandBack", req, outcome, err)
		}

		var outcomes []cell.ProgressOutcome
		reports := []cell.ProgressReport{{Attempt: id(1), Seq: 7, Value: json.RawMessage(`1`)}, {Attempt: id(2), Seq: 1, Value: json.RawMessage(`2`)}}
		progress := func() (err error) { outcomes, err = s.Progress(t.Context(), "", "", reports); return err }
		req, err = call(progress, frame.TypeProgress, &frame.Answer{Type: frame.TypeProgressed, Outcomes: []string{"taken", "cancel"}})
		if err != nil || !reflect.DeepEqual(outcomes, []cell.ProgressOutcome{cell.ProgressTaken, cell.ProgressCancel}) || len(req.Reports) != 2 ||
			req.Reports[0].Attempt != framed(1) || req.Reports[0].Seq != 7 || string(req.Reports[0].Value) != `1` {
			t.Errorf("%+v, %v, %v", req, outcomes, err)
		}
		if _, err = call(progress, frame.TypeProgress, &frame.Answer{Type: frame.TypeProgressed, Outcomes: []string{"taken"}}); err == nil {
			t.Error("one outcome of two reports is no error; want one")
		}
		_, err = call(progress, frame.TypeProgress, &frame.Answer{Type: frame.TypeProgressed, Outcomes: []string{"praised", "stale"}})
		if err != nil || !reflect.DeepEqual(outcomes, []cell.ProgressOutcome{cell.ProgressTaken, cell.ProgressStale}) {
			t.Errorf("the outcomes praised and stale are %v, %v; want taken and stale", outcomes, err)
		}

		var job *freeslot.Job
		var tenant string
		req, err = call(func() (err error) { job, tenant, err = s.Spec(t.Context(), "j"); return err },
			frame.TypeSpec, &frame.Answer{Type: frame.TypeSpec, Tenant: "acme", Job: &freeslot.Job{Service: "s"}})
		if err != nil || req.JobID != "j" || tenant != "acme" || job.Service != "s" {
			t.Errorf(`%+v, %+v, %v; want no error, req.JobID == "j", tenant == "acme", job.Service == "s"`, req, job, err)
		}

		var lost []string
		_, err = call(func() (err error) { lost, err = s.Deregister(t.Context(), "", ""); return err },
			frame.TypeDeregister, &frame.Answer{Type: frame.TypeDeregistered, Lost: []string{"j"}})
		if err != nil || len(lost) != 1 {
			t.Errorf("%v, %v; want no error, len(lost) == 1", lost, err)
		}
	})
}

// TestGatewayErrors: only what was not carried out is a *freeslot.Error.
func TestGatewayErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		for code, want := range map[freeslot.Code]error{
			frame.CodeSuperseded: cell.ErrSuperseded, frame.CodeUnknownNode: cell.ErrUnknownNode,
			freeslot.CodeUnavailable: nil, freeslot.CodeInternal: nil, frame.CodeStaleConnection: nil,
			freeslot.CodeInvalidArgument: &freeslot.Error{Code: freeslot.CodeInvalidArgument},
			freeslot.CodeOverloaded:      &freeslot.Error{Code: freeslot.CodeOverloaded},
			frame.CodeNodeInUse:          &freeslot.Error{Code: frame.CodeNodeInUse},
		} {
			done := s.heartbeat(t)
			peer.Send(&frame.Answer{Type: frame.TypeError, ID: peer.Next(frame.TypeHeartbeat).ID, Code: code, Message: "m"})
			err := <-done
			if want != nil && !errors.Is(err, want) || want == nil && (err == nil || errors.As(err, new(*freeslot.Error))) {
				t.Errorf("%s: %v; want want == nil or errors.Is(err, want), want != nil or (an error and not errors.As(err, new(*freeslot.Error)))", code, err)
			}
		}
		if s.current == nil {
			t.Error("an error ended the connection")
		}
	})
}

// TestGatewayRepeatsHeartbeat: a heartbeat whose connection ends is repeated on the next one, within
// its own time. The next connection has a higher number.
func TestGatewayRepeatsHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		first := g.Session()
		done := s.heartbeat(t)
		first.Next(frame.TypeHeartbeat)
		_ = first.Socket.CloseNow()
		second := g.Session()
		req := second.Next(frame.TypeHeartbeat)
		if second.Hello.Connection != 2 {
			t.Errorf("%+v; want second.Hello.Connection == 2", second.Hello)
		}
		<-s.beats // what was missed meanwhile
		second.Send(&frame.Answer{Type: frame.TypeBeat, ID: req.ID})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestGatewayLateAnswer: an answer to a report that was given up brings no jobs, and neither does one
// by a former connection. A report whose connection ends is left to the worker.
func TestGatewayLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		complete := func() <-chan error {
			return gatewaytest.Async(func() error {
				_, err := s.Complete(context.Background(), cell.Completion{
					Attempt: id(1), State: freeslot.StateSucceeded, Begun: func(d []cell.Dispatch) { t.Errorf("begun %+v", d) },
				})
				return err
			})
		}
		begin, done := time.Now(), complete()
		late := &frame.Answer{Type: frame.TypeCompleted, ID: peer.Next(frame.TypeComplete).ID, Outcome: "completed", Begun: []frame.Delivery{{Attempt: framed(2)}}}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cell.ErrNotSent) || time.Since(begin) != s.cfg.CallTimeout {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		peer.Send(late)
		synctest.Wait()
		done = complete()
		peer.Next(frame.TypeComplete)
		_ = peer.Socket.CloseNow()
		if err := <-done; !errors.Is(err, errConnectionLost) {
			t.Error(err)
		}
		again := g.Session()
		synctest.Wait()
		if len(again.Requests) != 0 {
			t.Error("the report was repeated")
		}
	})
}

// TestGatewayAway: calls wait for a connection until their time ends, and were not sent then. One
// that was sent before may have been carried out.
func TestGatewayAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		g.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		done := s.heartbeat(t)
		peer.Next(frame.TypeHeartbeat)
		_ = peer.Socket.CloseNow()
		if err := <-done; err == nil || errors.Is(err, cell.ErrNotSent) {
			t.Errorf("sent: %v", err)
		}
		if err := <-s.heartbeat(t); !errors.Is(err, cell.ErrNotSent) {
			t.Errorf("not sent: %v", err)
		}
	})
}

// TestGatewayDeliveries: jobs and cancels come in their order, with ids that the worker can count,
// and no more at once than asked for. What is beyond the bound is dropped, and a heartbeat is
// requested.
func TestGatewayDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		peer.Send(&frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(1), Tenant: "acme", Job: &freeslot.Job{Service: "s"}}, {Attempt: framed(2)}}},
			&frame.Answer{Type: frame.TypeCancel, Attempts: []frame.Attempt{framed(1)}}, &frame.Answer{Type: "of a later release"})
		found, err := s.Dispatches(t.Context(), "", "", time.Second, 2)
		if err != nil || len(found) != 2 || found[0].Attempt != id(1) || found[0].Tenant != "acme" || found[0].Job == nil || found[1].Job != nil || found[0].ID == found[1].ID {
			t.Errorf(`%+v, %v; want no error, len(found) == 2, found[0].Attempt == id(1), found[0].Tenant == "acme", found[0].Job != nil, found[1].Job == nil, found[0].ID != found[1].ID`, found, err)
		}
		if found, err = s.Dispatches(t.Context(), "", found[1].ID, time.Second, 2); err != nil || len(found) != 1 || !found[0].Cancel || found[0].Attempt != id(1) {
			t.Errorf("%+v, %v; want no error, len(found) == 1, found[0].Cancel, found[0].Attempt == id(1)", found, err)
		}
		begin := time.Now()
		if found, err = s.Dispatches(t.Context(), "", "", time.Second, 2); err != nil || found != nil || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v; want no error, found == nil, time.Since(begin) == time.Second", found, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("read again"))
		if _, err = s.Dispatches(ctx, "", "", time.Second, 2); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}

		for range queueSpare {
			peer.Send(&frame.Answer{Type: frame.TypeCancel, Attempts: []frame.Attempt{framed(3)}})
		}
		synctest.Wait()
		select {
		case <-s.beats:
			t.Error("a heartbeat was requested before the bound")
		default:
		}
		peer.Send(&frame.Answer{Type: frame.TypeCancel, Attempts: []frame.Attempt{framed(4)}})
		<-s.beats
		found, err = s.Dispatches(t.Context(), "", "", time.Second, 2*queueSpare)
		if err != nil || len(found) != queueSpare || found[len(found)-1].Attempt != id(3) {
			t.Errorf("%d, %v; want no error, len(found) == %v, found[len(found)-1].Attempt == id(3)", len(found), err, queueSpare)
		}
		peer.Send(&frame.Answer{Type: frame.TypeSync})
		<-s.beats
	})
}

// TestGatewayBeatWaits: a heartbeat is answered once the deliveries before its answer were taken in.
func TestGatewayBeatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		done := s.heartbeat(t)
		beat := &frame.Answer{Type: frame.TypeBeat, ID: peer.Next(frame.TypeHeartbeat).ID}
		peer.Send(&frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(1)}}}, beat,
			&frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(2)}}})
		read := func() {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				t.Errorf("answered before the delivery was taken in: %v", err)
			default:
			}
			if found, err := s.Dispatches(t.Context(), "", "", time.Second, 1); err != nil || len(found) != 1 {
				t.Errorf("%+v, %v; want no error, len(found) == 1", found, err)
			}
		}
		read()
		read() // which says that the worker has taken in the first
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestGatewaySuperseded: after close code 4010 every call fails, and nothing dials again.
func TestGatewaySuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		reading := gatewaytest.Async(func() error { _, err := s.Dispatches(t.Context(), "", "", time.Hour, 1); return err })
		_ = peer.Socket.Close(frame.CloseSuperseded, "")
		if err := <-reading; !errors.Is(err, cell.ErrSuperseded) {
			t.Error(err)
		}
		if err := <-s.heartbeat(t); !errors.Is(err, cell.ErrSuperseded) {
			t.Error(err)
		}
		if _, err := s.Complete(t.Context(), cell.Completion{}); !errors.Is(err, cell.ErrSuperseded) {
			t.Error(err)
		}
		s.loops.Wait()
		if len(g.Sessions) != 0 {
			t.Error("it dialled again")
		}
	})
}

// TestGatewayGoaway: the node is connected elsewhere before it leaves; behind one address it leaves
// before it connects. It says goodbye in both cases.
func TestGatewayGoaway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		gateways := []*gatewaytest.Gateway{gatewaytest.Serve(t, &p, "a"), gatewaytest.Serve(t, &p, "b")}
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a,ws://b"})
		synctest.Wait() // until one of them has the session
		from, to := gateways[0], gateways[1]
		if len(to.Sessions) > 0 {
			from, to = to, from
		}
		first := from.Session()
		done := s.heartbeat(t)
		unanswered := first.Next(frame.TypeHeartbeat)
		first.Send(&frame.Answer{Type: frame.TypeGoaway})
		second := to.Session()
		if code := first.End(); code != websocket.StatusNormalClosure {
			t.Error(code)
		}
		if again := second.Next(frame.TypeHeartbeat); again.ID == 0 || unanswered.ID == 0 {
			t.Error("a request without an id")
		} else {
			second.Send(&frame.Answer{Type: frame.TypeBeat, ID: again.ID})
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		first := g.Session()
		first.Send(&frame.Answer{Type: frame.TypeGoaway})
		if code := first.End(); code != websocket.StatusNormalClosure || len(g.Sessions) > 0 {
			t.Errorf("%v, and %d more sessions", code, len(g.Sessions))
		}
		g.Session()
	})
}

// TestGatewayToken: the file is read at each dial. A refused token is tried again with pauses of up
// to 30 s, and a defect after a minute.
func TestGatewayToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one\n")
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		startScriptedStore(t, &p, Config{Gateway: "ws://a", TokenFile: file})
		first := g.Session()
		if first.Token != "Bearer one" {
			t.Error(first.Token)
		}
		refused := 0
		g.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") == "Bearer three" {
				return false
			}
			if refused++; refused == 12 {
				write("three")
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"code":"unauthenticated","message":"no such token"}`)
			return true
		}
		write("two")
		begin := time.Now()
		_ = first.Socket.Close(frame.CloseRights, "")
		second := g.Session()
		if took := time.Since(begin); second.Token != "Bearer three" || refused != 12 || took < 5*time.Second || took > 2*time.Minute {
			t.Errorf("%s after %d refusals in %s", second.Token, refused, took)
		}
		begin = time.Now()
		_ = second.Socket.Close(frame.CloseDefect, "")
		g.Session()
		if took := time.Since(begin); took < defectPause || took > 2*defectPause {
			t.Errorf("after a defect it was back in %s", took)
		}
	})
}

// TestGatewayStart: an unusable gateway fails the start, with a code and the field to mend, and
// without the token.
func TestGatewayStart(t *testing.T) {
	for name, test := range map[string]struct {
		gateway string
		change  func(*Config)
		refuse  func(w http.ResponseWriter, r *http.Request)
		want    string
	}{
		"nobody there": {"ws://b", nil, nil, "unavailable: gateway b cannot be used: connection refused"},
		"no token": {
			"ws://a", func(c *Config) { c.TokenFile = "/nowhere/token" }, nil,
			"invalid_argument: token_file cannot be read: open /nowhere/token: no such file or directory",
		},
		"refused": {"ws://a", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"code":"permission_denied","message":"the token does not name node node-1"}`)
		}, "permission_denied: token is refused by gateway a: the token does not name node node-1"},
		"full": {"ws://a", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"overloaded","message":"has 1000 agents"}`)
		}, "overloaded: gateway a: has 1000 agents"},
		"something else": {
			"ws://a", nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			"unavailable: gateway a cannot be used: this is no gateway that speaks freeslot.node.v1: HTTP status 404 Not Found",
		},
		"a replica without a gateway": {"ws://a", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"not_found","message":"there is nothing at this path; /openapi.json lists what there is"}`)
		}, "not_found: gateway a: this replica is no gateway; set gateway.tokens_file there, or name its gateway.listen"},
		"redirects": {
			"ws://a", nil, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://b/v1/node", http.StatusFound)
			},
			"unavailable: gateway a cannot be used: this is no gateway that speaks freeslot.node.v1: HTTP status 302 Found",
		},
		"other protocol": {"ws://a", nil, func(w http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(w, r, nil); err == nil {
				_ = c.CloseNow()
			}
		}, "unavailable: gateway a cannot be used: this is no gateway that speaks freeslot.node.v1"},
		"silent": {"ws://a", nil, func(w http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{frame.Protocol}}); err == nil {
				_, _, _ = c.Read(r.Context())
				_, _, _ = c.Read(r.Context())
			}
		}, "unavailable: gateway a cannot be used: context deadline exceeded"},
		"refused hello": {"ws://a", nil, func(w http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{frame.Protocol}}); err == nil {
				_, _, _ = c.Read(r.Context())
				_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"type":"error","code":"overloaded","message":"full"}`))
				_ = c.Close(websocket.StatusTryAgainLater, "")
			}
		}, "overloaded: gateway a: full"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p gatewaytest.Network
				g := gatewaytest.Serve(t, &p, "a")
				g.Refuse = func(w http.ResponseWriter, r *http.Request) bool { test.refuse(w, r); return true }
				cfg := Config{Gateway: test.gateway}
				if test.change != nil {
					test.change(&cfg)
				}
				s := newScriptedStore(t, &p, cfg)
				if err := s.Start(t.Context()); err == nil || err.Error() != test.want {
					t.Errorf("got  %v\nwant %s", err, test.want)
				}
			})
		})
	}
}

// TestGatewayBulk: large results and specs go by HTTP, two at once, and belong to the session.
func TestGatewayBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		arrived, release := make(chan string, 16), make(chan struct{})
		large := json.RawMessage(`"` + strings.Repeat("x", frame.InlineBytes) + `"`)
		g.Bulk = func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get(frame.NodeHeader) != "node-1" || r.Header.Get(frame.SessionHeader) != "a-1" {
				t.Errorf(`%s %v; want r.Method == http.MethodPost, r.Header.Get("Authorization") == "Bearer secret", r.Header.Get(frame.NodeHeader) == "node-1", r.Header.Get(frame.SessionHeader) == "a-1"`, r.Method, r.Header)
			}
			body, _ := io.ReadAll(r.Body)
			var q frame.Request
			if err := json.Unmarshal(body, &q); err != nil {
				t.Error(err)
			}
			arrived <- r.URL.Path
			<-release
			var answer []byte
			switch {
			case r.URL.Path == frame.SpecPath && q.JobID == "j":
				answer, _ = frame.Append(nil, &frame.Answer{Type: frame.TypeSpec, Tenant: "acme", Job: &freeslot.Job{Payload: large}})
			case r.URL.Path == frame.SpecPath:
				w.WriteHeader(http.StatusNotFound)
				answer = []byte(`{"code":"not_found","message":"no such job"}`)
			case *q.Attempt == framed(1) && string(q.Result) == string(large):
				answer, _ = frame.Append(nil, &frame.Answer{Type: frame.TypeCompleted, Outcome: "completed", Begun: []frame.Delivery{{Attempt: framed(2)}}})
			case *q.Attempt == framed(4): // the token's line has just gone
				w.WriteHeader(http.StatusUnauthorized)
				answer = []byte(`{"code":"unauthenticated","message":"the token is not known"}`)
			default:
				w.WriteHeader(http.StatusBadGateway)
			}
			_, _ = w.Write(answer)
		}
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		begun := make(chan cell.Attempt, 16)
		complete := func(n int) <-chan error {
			return gatewaytest.Async(func() error {
				_, err := s.Complete(context.Background(), cell.Completion{
					Attempt: id(n), State: freeslot.StateSucceeded, Result: large, Begun: func(d []cell.Dispatch) { begun <- d[0].Attempt },
				})
				return err
			})
		}
		results := []<-chan error{complete(1), complete(1), complete(1)}
		<-arrived
		<-arrived
		synctest.Wait()
		if len(arrived) != 0 {
			t.Error("three requests at once")
		}
		beat := s.heartbeat(t) // it does not wait behind them
		peer.Send(&frame.Answer{Type: frame.TypeBeat, ID: peer.Next(frame.TypeHeartbeat).ID})
		if err := <-beat; err != nil {
			t.Error(err)
		}
		close(release)
		for _, done := range results {
			if err := <-done; err != nil || <-begun != id(2) {
				t.Error(err)
			}
		}
		for _, n := range []int{3, 4} {
			if err := <-complete(n); err == nil || errors.As(err, new(*freeslot.Error)) {
				t.Errorf("a gateway's failure, which is not final: %v", err)
			}
		}
		spec := func(jobID string) (job *freeslot.Job, err error) {
			done := gatewaytest.Async(func() (err error) { job, _, err = s.Spec(t.Context(), jobID); return err })
			peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: peer.Next(frame.TypeSpec).ID, Large: true})
			return job, <-done
		}
		if job, err := spec("j"); err != nil || string(job.Payload) != string(large) {
			t.Error(err)
		}
		if _, err := spec("other"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Error(err)
		}

		release = make(chan struct{}) // what is under way ends with its session
		done := complete(1)
		for len(arrived) > 0 {
			<-arrived
		}
		<-arrived
		_ = peer.Socket.CloseNow()
		if err := <-done; err == nil || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(release)
	})
}

// TestCheck: the hello asks alone, and the answer says what the token may do.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := newScriptedStore(t, &p, Config{Gateway: "ws://a"})
		welcome, err := s.Check(t.Context())
		if err != nil || welcome.Replica != "a" || welcome.Allows.Token != "t" || welcome.HeartbeatLimitMS != 8000 {
			t.Errorf("welcome %+v, %v, expected replica a, token t and 8000 ms", welcome, err)
		}
		if peer := g.Session(); !peer.Hello.Check || peer.End() != websocket.StatusNormalClosure {
			t.Errorf("%+v; want peer.Hello.Check, peer.End() == websocket.StatusNormalClosure", peer.Hello)
		}
	})
}
