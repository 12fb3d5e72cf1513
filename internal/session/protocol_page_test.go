package session

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/wire"
)

// example is a fenced block of docs/protocol.md that has steps to replay.
type example struct {
	// name is the heading above it, with its line.
	name  string
	steps []step
}

// step is one line of an example.
type step struct {
	line int
	// session is "A" or "B"; empty for an action.
	session string
	send    bool
	// text is the frame, the pattern of a message, or the name of the action.
	text string
}

// readExamples collects the fenced json blocks of a page that have an arrow.
func readExamples(path string) ([]example, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []example
	var heading string
	var current *example
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		switch {
		case current == nil && strings.HasPrefix(text, "#"):
			heading = strings.TrimLeft(text, "# ")
		case current == nil && text == "```json":
			current = &example{name: fmt.Sprintf("%s/line %d", heading, n)}
		case current != nil && text == "```":
			if len(current.steps) > 0 {
				all = append(all, *current)
			}
			current = nil
		case current != nil:
			s, err := parseStep(n, text)
			if err != nil {
				return nil, err
			}
			current.steps = append(current.steps, s)
		}
	}
	return all, lines.Err()
}

func parseStep(line int, text string) (step, error) {
	if action, ok := strings.CutPrefix(text, "# "); ok {
		return step{line: line, text: action}, nil
	}
	session := "A"
	if strings.HasPrefix(text, "A") || strings.HasPrefix(text, "B") {
		session, text = text[:1], text[1:]
	}
	if frame, ok := strings.CutPrefix(text, "→ "); ok {
		return step{line: line, session: session, send: true, text: frame}, nil
	}
	if pattern, ok := strings.CutPrefix(text, "← "); ok {
		return step{line: line, session: session, text: pattern}, nil
	}
	return step{}, fmt.Errorf("line %d is no step: %s", line, text)
}

// replay plays an example against the endpoint at url. Lines with # run the actions.
func replay(t *testing.T, e example, url string, header http.Header, actions map[string]func()) {
	t.Helper()
	vars := variables{}
	peers := map[string]*peer{}
	expecting := strings.Contains(e.steps[0].text, `"welcome"`)
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
	for i := 0; i < len(e.steps); i++ {
		switch s := e.steps[i]; {
		case s.session == "":
			actions[s.text]()
		case s.send:
			open(s.session).send(s.text)
		default:
			group := []step{s}
			for i+1 < len(e.steps) && e.steps[i+1].session != "" && !e.steps[i+1].send {
				i++
				group = append(group, e.steps[i])
			}
			expectGroup(t, group, vars, open)
		}
	}
	for name, p := range peers {
		p.send(`{"type":"ping","id":"nothing more"}`)
		if got := p.read(); !strings.Contains(string(got), "nothing more") {
			t.Errorf("session %s gets more than the example has: %s", name, got)
		}
	}
}

// expectGroup reads as many messages as there are steps: in any order between sessions, and in
// order within one.
func expectGroup(t *testing.T, group []step, vars variables, open func(string) *peer) {
	t.Helper()
	for _, session := range []string{"A", "B"} {
		var left []step
		for _, s := range group {
			if s.session == session {
				left = append(left, s)
			}
		}
		for len(left) > 0 {
			got := open(session).read()
			found, failures := -1, ""
			for i, s := range left {
				trial := maps.Clone(vars)
				err := trial.match([]byte(s.text), got)
				if err == nil {
					maps.Copy(vars, trial)
					found = i
					break
				}
				failures += fmt.Sprintf("\nline %d: %v", s.line, err)
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
	examples, err := readExamples(protocolPage)
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) < 8 {
		t.Fatalf("only %d examples found", len(examples))
	}
	seen := map[string]bool{}
	for _, e := range examples {
		for _, s := range e.steps {
			var message struct{ Type string }
			if err := json.Unmarshal([]byte(s.text), &message); err == nil {
				seen[message.Type] = true
			}
		}
		t.Run(e.name, func(t *testing.T) {
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
