package faults

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// rawLimit bounds what a raw agent waits for.
	rawLimit = 15 * time.Second
	rawEpoch = "e1"
)

// rawAgent is a connection of a node to a gateway. It sends what no agent of this build would send.
type rawAgent struct {
	t        *testing.T
	node     string
	socket   *websocket.Conn
	replaces string
	last     uint64                  // id of a request
	answers  map[uint64]frame.Answer // by id; 0 is a welcome or an error
	jobs     []frame.Delivery        // that begin
}

// rawAgent connects to a replica and says hello, again while Redis does not answer the replica.
func (f *fleet) rawAgent(t *testing.T, node, replica string, connection int64) *rawAgent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rawLimit)
	defer cancel()
	for {
		socket, _, err := websocket.Dial(ctx, "ws://"+f.replicas[replica]+frame.Path, &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + nodeToken(node)}}, Subprotocols: []string{frame.Protocol},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.CloseNow() })
		a := &rawAgent{t: t, node: node, socket: socket, answers: map[uint64]frame.Answer{}}
		a.write(frame.Request{Type: frame.TypeHello, Node: node, Epoch: rawEpoch, Connection: connection})
		answer := a.answer(0)
		switch {
		case answer.Type == frame.TypeWelcome:
			a.replaces = answer.Replaces
			return a
		case answer.Code != freeslot.CodeUnavailable:
			t.Fatalf("hello of %s: %+v", node, answer)
		}
	}
}

func (a *rawAgent) write(message any) {
	a.t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), rawLimit)
	defer cancel()
	if err := a.socket.Write(ctx, websocket.MessageText, text); err != nil {
		a.t.Fatalf("%s: %v; want no error", a.node, err)
	}
}

// read takes in one frame.
func (a *rawAgent) read() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), rawLimit)
	defer cancel()
	_, text, err := a.socket.Read(ctx)
	if err == nil {
		err = frame.DecodeAnswers(text, func(answer *frame.Answer) error {
			if answer.Type == frame.TypeJobs {
				a.jobs = append(a.jobs, answer.Jobs...)
			} else if answer.ID > 0 || answer.Type == frame.TypeWelcome || answer.Type == frame.TypeError {
				a.answers[answer.ID] = *answer
			}
			return nil
		})
	}
	if err != nil {
		a.t.Fatalf("%s: %v; want no error", a.node, err)
	}
}

// send sends requests in one frame and returns the id of the first. The others have those that follow.
func (a *rawAgent) send(requests ...frame.Request) uint64 {
	a.t.Helper()
	first := a.last + 1
	for i := range requests {
		a.last++
		requests[i].ID = a.last
	}
	a.write(requests)
	return first
}

// answer waits for the answer of a request.
func (a *rawAgent) answer(id uint64) frame.Answer {
	a.t.Helper()
	for {
		if answer, ok := a.answers[id]; ok {
			return answer
		}
		a.read()
	}
}

// call repeats the request while Redis does not answer the gateway.
func (a *rawAgent) call(request frame.Request) frame.Answer {
	a.t.Helper()
	for {
		answer := a.answer(a.send(request))
		if answer.Code != freeslot.CodeUnavailable {
			return answer
		}
	}
}

// fence waits until the gateway has begun what was sent before. It refuses an end without an attempt by
// itself.
func (a *rawAgent) fence() {
	a.t.Helper()
	if answer := a.answer(a.send(frame.Request{Type: frame.TypeComplete})); answer.Code != freeslot.CodeInvalidArgument {
		a.t.Fatalf("%s: %+v; want answer.Code == freeslot.CodeInvalidArgument", a.node, answer)
	}
}

// begun waits for as many jobs that begin, and takes them.
func (a *rawAgent) begun(n int) []frame.Delivery {
	a.t.Helper()
	for len(a.jobs) < n {
		a.read()
	}
	jobs := a.jobs[:n]
	a.jobs = a.jobs[n:]
	return jobs
}

// registration is of a node that offers a service with its own name.
func (a *rawAgent) registration(slots int) frame.Request {
	return frame.Request{Type: frame.TypeRegister, Replaces: a.replaces, Profile: &freeslot.Node{
		MaxConcurrency: slots, Services: []freeslot.Service{{Name: a.node}},
	}}
}

func heartbeat() frame.Request {
	return frame.Request{Type: frame.TypeHeartbeat, Status: freeslot.StatusOnline, Now: true}
}

// success is the report of an attempt that has succeeded.
func success(attempt frame.Attempt) frame.Request {
	return frame.Request{Type: frame.TypeComplete, Attempt: &attempt, State: freeslot.StateSucceeded}
}

// enlist registers the node, and has it heard.
func (a *rawAgent) enlist(slots int) {
	a.t.Helper()
	for _, request := range []frame.Request{a.registration(slots), heartbeat()} {
		if answer := a.call(request); answer.Type == frame.TypeError {
			a.t.Fatalf("%s of %s: %+v", request.Type, a.node, answer)
		}
	}
}
