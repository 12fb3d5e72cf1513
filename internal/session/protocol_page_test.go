package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/wire"
)

// replay plays an example against the endpoint at url. Lines with # run the actions.
func replay(t *testing.T, e pagetest.Example, url string, header http.Header, actions map[string]func()) {
	t.Helper()
	vars := pagetest.Variables{}
	peers := map[string]*peer{}
	expecting := strings.Contains(e.Steps[0].Text, `"welcome"`)
	open := func(name string) *peer {
		if p := peers[name]; p != nil {
			return p
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{wire.Protocol}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		p := &peer{t: t, conn: conn, vars: vars}
		if !expecting {
			p.read()
		}
		peers[name] = p
		return p
	}
	for i := 0; i < len(e.Steps); i++ {
		switch s := e.Steps[i]; {
		case s.Session == "":
			actions[s.Text]()
		case s.Send:
			open(s.Session).send(s.Text)
		default:
			group := []pagetest.Step{s}
			for i+1 < len(e.Steps) && e.Steps[i+1].Session != "" && !e.Steps[i+1].Send {
				i++
				group = append(group, e.Steps[i])
			}
			expectGroup(t, group, vars, open)
		}
	}
	for name, p := range peers {
		p.send(`{"type":"ping","id":"nothing more"}`)
		if got := p.read(); !strings.Contains(string(got), "nothing more") {
			t.Errorf("session %s gets more than the pagetest.Example has: %s", name, got)
		}
	}
}

// expectGroup reads as many messages as there are steps: in any order between sessions, and in
// order within one.
func expectGroup(t *testing.T, group []pagetest.Step, vars pagetest.Variables, open func(string) *peer) {
	t.Helper()
	for _, session := range []string{"A", "B"} {
		var left []pagetest.Step
		for _, s := range group {
			if s.Session == session {
				left = append(left, s)
			}
		}
		for len(left) > 0 {
			got := open(session).read()
			found, failures := -1, ""
			for i, s := range left {
				trial := maps.Clone(vars)
				err := trial.Match([]byte(s.Text), got)
				if err == nil {
					maps.Copy(vars, trial)
					found = i
					break
				}
				failures += fmt.Sprintf("\nline %d: %v", s.Line, err)
			}
			if found < 0 {
				t.Fatalf("session %s got %s, which fits nothing:%s", session, got, failures)
			}
			left = append(left[:found], left[found+1:]...)
		}
	}
}

const protocolPage = "../../docs/protocol.md"

func replayAll(t *testing.T, newServer func(t *testing.T) *server) {
	examples, err := pagetest.ReadExamples(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) < 8 {
		t.Fatalf("only %d examples found", len(examples))
	}
	seen := map[string]bool{}
	for _, e := range examples {
		for _, s := range e.Steps {
			var message struct{ Type string }
			if err := json.Unmarshal([]byte(s.Text), &message); err == nil {
				seen[message.Type] = true
			}
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			drained := make(chan error, 1)
			drain := func() { go func() { drained <- s.Drain(context.WithoutCancel(t.Context())) }() }
			replay(t, e, s.url+"/v1/ws", http.Header{"Authorization": {"Bearer default"}}, map[string]func(){"drain": drain})
		})
	}
	for _, typ := range wire.MessageTypes() {
		if !seen[string(typ)] {
			t.Errorf("no example has a message of type %s", typ)
		}
	}
	for _, typ := range wire.RequestTypes() {
		if !seen[string(typ)] {
			t.Errorf("no example has a request of type %s", typ)
		}
	}
}

// TestProtocolPage replays docs/protocol.md with a dispatcher made of memory.
func TestProtocolPage(t *testing.T) {
	t.Parallel()
	replayAll(t, func(t *testing.T) *server {
		d := newFakeDispatcher()
		d.slots = 100
		return serve(t, Config{}, d)
	})
}
