package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	clientPath = "/v1/ws"
	// writeLimit bounds the writing of one frame.
	writeLimit = waittest.Limit
	// inboxSize bounds the messages of a session that no step has taken.
	inboxSize = 4096
)

// servers are the addresses of one scenario. Handshakes and requests of HTTP wait until a step takes
// them.
type servers struct {
	t          *testing.T
	kind       string // "client" or "node"
	addresses  []string
	handshakes chan *handshake
	posts      chan *post
	// over is closed at the end of the scenario: from then on all that waits is refused.
	over chan struct{}
	// sessions waits for the readers of all sessions.
	sessions sync.WaitGroup

	mu     sync.Mutex // guards the rest
	ending bool       // every request is answered, so that the driver can end in order
	refuse bool       // every handshake is refused
	// registered is true once a register was answered. Later ones are then answered at once, because
	// an agent may repeat one at any time. A beat with the code unknown_node ends that.
	registered bool
	// completes holds the attempts of completes that steps took, by session and id, and answered the
	// ones that a step answered. An agent that was answered late may have repeated its complete.
	completes map[string]string
	answered  map[string]bool
	epoch     string // of the first hello, and the number of the last one
	number    int64
}

// refusal is the body of a refused handshake.
const refusal = `{"code":"unavailable","message":"the replica is stopping"}`

// handshake is one that waits for a step.
type handshake struct {
	w       http.ResponseWriter
	r       *http.Request
	address string
	done    chan struct{} // closed once it is answered
}

// post is a request of HTTP that waits for a step.
type post struct {
	r      *http.Request
	body   []byte
	answer chan reply
}

type reply struct {
	status int
	body   []byte
}

type rawConn struct{}

func newServers(t *testing.T, kind string, n int) *servers {
	t.Helper()
	s := &servers{
		t: t, kind: kind, handshakes: make(chan *handshake, 16), posts: make(chan *post, 16),
		over: make(chan struct{}), completes: map[string]string{}, answered: map[string]bool{},
	}
	for range n {
		server := httptest.NewUnstartedServer(nil)
		server.Config.Handler = s.handler(server.Listener.Addr().String())
		server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, rawConn{}, c)
		}
		server.Start()
		s.addresses = append(s.addresses, "ws://"+server.Listener.Addr().String())
		t.Cleanup(server.Close)
	}
	t.Cleanup(func() { // before the servers' Close, which waits for handlers
		close(s.over)
		s.sessions.Wait()
	})
	return s
}

func (s *servers) handler(address string) http.Handler {
	path := clientPath
	if s.kind == "node" {
		path = frame.Path
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case path:
			h := &handshake{w: w, r: r, address: address, done: make(chan struct{})}
			if s.refuses() {
				h.refuse(http.StatusServiceUnavailable, nil, []byte(refusal))
				return
			}
			select {
			case s.handshakes <- h:
			case <-s.over:
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			select {
			case <-h.done:
			case <-s.over:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case frame.CompletePath, frame.SpecPath:
			s.takePost(w, r)
		default:
			s.t.Errorf("the driver asked for %s %s, expected %s", r.Method, r.URL.Path, path)
			w.WriteHeader(http.StatusNotFound)
		}
	})
}

func (s *servers) takePost(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the driver has gone
	}
	p := &post{r: r, body: body, answer: make(chan reply, 1)}
	select {
	case s.posts <- p:
	case <-s.over:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	select {
	case a := <-p.answer:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body)
	case <-s.over:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// refuse answers a handshake with an error.
func (h *handshake) refuse(status int, header map[string]string, body []byte) {
	for name, value := range header {
		h.w.Header().Set(name, value)
	}
	h.w.Header().Set("Content-Type", "application/json")
	h.w.WriteHeader(status)
	_, _ = h.w.Write(body)
	close(h.done)
}

// token returns the token of the handshake, which browsers send in the query.
func (h *handshake) token() string {
	if token, ok := strings.CutPrefix(h.r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return h.r.URL.Query().Get("access_token")
}

// session is one connection of the driver.
type session struct {
	servers *servers
	name    string
	address string
	conn    *websocket.Conn
	raw     net.Conn
	batch   bool // several messages may share a frame
	// inbox holds messages, and is closed behind the end. held holds messages that came before they
	// were asked for.
	inbox chan message
	held  []message
	id    string // in the welcome of a node
	// deafen makes the reader wait, behind the next message, until hear is closed. deaf is true meanwhile.
	deafen chan struct{}
	hear   chan struct{}
	deaf   bool

	writes sync.Mutex // held over one frame

	mu     sync.Mutex // guards the rest
	silent bool       // nothing is answered or kept any more
	cut    bool
	beat   *beatStep // takes the next heartbeat that fits; nil answers each with an empty beat
}

// message is one that the driver sent, or the end of the connection.
type message struct {
	text  json.RawMessage
	end   bool
	close int // the close code, -1 for none
}

// beatStep waits for a heartbeat.
type beatStep struct {
	fits   func(heartbeat []byte) error
	answer object
	done   chan struct{}
	misses []string // the last heartbeats that did not fit
}

// accept makes a session of a handshake.
func (s *servers) accept(h *handshake, name string) *session {
	s.t.Helper()
	protocol := wire.Protocol
	if s.kind == "node" {
		protocol = frame.Protocol
	}
	out := &session{
		servers: s, name: name, address: h.address, inbox: make(chan message, inboxSize), id: "session-" + name,
		deafen: make(chan struct{}, 1), hear: make(chan struct{}),
		batch: s.kind == "node" || h.r.URL.Query().Get("frames") == "batch",
	}
	out.raw, _ = h.r.Context().Value(rawConn{}).(net.Conn)
	conn, err := websocket.Accept(h.w, h.r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true,
		OnPingReceived: func(context.Context, []byte) bool { return !out.isSilent() },
	})
	if err != nil {
		s.t.Fatalf("session %s: %v", name, err)
	}
	conn.SetReadLimit(frame.MaxFrameBytes * 8)
	out.conn = conn
	s.sessions.Go(out.read)
	s.sessions.Go(func() {
		<-s.over
		_ = conn.CloseNow()
	})
	close(h.done)
	return out
}

func (c *session) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

// read takes messages until the connection ends.
func (c *session) read() {
	defer close(c.inbox)
	for {
		_, text, err := c.conn.Read(context.Background())
		if err != nil {
			c.inbox <- message{end: true, close: int(websocket.CloseStatus(err))}
			return
		}
		all := []json.RawMessage{text}
		if text[0] == '[' {
			if err := json.Unmarshal(text, &all); err != nil {
				c.servers.t.Errorf("session %s: %.200s: %v", c.name, text, err)
			}
		}
		for _, one := range all {
			c.receive(one)
		}
		select {
		case <-c.deafen:
			select {
			case <-c.hear:
			case <-c.servers.over:
			}
		default:
		}
	}
}

// head is what the server needs of a message to answer it by itself.
type head struct {
	Type       string
	ID         json.RawMessage
	Attempt    string
	Running    []string
	Reports    []json.RawMessage
	Epoch      string
	Connection int64
}

// receive answers heartbeats and pings by itself, and keeps the rest for the steps.
func (c *session) receive(text json.RawMessage) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		c.servers.t.Errorf("session %s received %.200s: %v", c.name, text, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.silent:
	case h.Type == "ping":
		_ = c.write(object{"type": "pong", "id": h.ID})
	case h.Type == "heartbeat":
		c.answerBeat(text, &h)
	case h.Type == "register" && c.servers.isRegistered():
		_ = c.write(object{"type": "registered", "id": h.ID})
	case c.servers.isEnding():
		c.answerAnything(&h)
	case h.Type == "complete" && c.servers.late(c.name, &h):
		_ = c.write(object{"type": "completed", "id": h.ID, "outcome": "completed_before"})
	default:
		if h.Type == "hello" {
			c.servers.checkNumber(&h)
		}
		c.inbox <- message{text: text}
	}
}

// late reports whether a complete is the first repetition of one that was answered.
func (s *servers) late(session string, h *head) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completes[session+string(h.ID)] = h.Attempt
	late := s.answered[h.Attempt]
	s.answered[h.Attempt] = false
	return late
}

// completed records that the complete with this id was answered.
func (s *servers) completed(session, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered[s.completes[session+id]] = true
}

// answerBeat answers with the step that waits if the heartbeat fits it, else with an empty beat. The
// caller holds mu.
func (c *session) answerBeat(text json.RawMessage, h *head) {
	answer := object{"type": "beat"}
	if b := c.beat; b != nil {
		err := b.fits(normalBeat(text, h))
		if err == nil {
			c.beat, answer = nil, b.answer
			if answer["code"] == string(frame.CodeUnknownNode) {
				c.servers.setRegistered(false)
			}
			defer close(b.done)
		} else {
			b.misses = append(b.misses, err.Error()) // without the id, which would look like a move
		}
	}
	if answer == nil {
		return
	}
	answered := object{"id": h.ID}
	for name, value := range answer {
		answered[name] = value
	}
	_ = c.write(answered)
}

// normalBeat sorts a heartbeat's attempts, which have no order, and makes absent ones an empty list.
func normalBeat(text json.RawMessage, h *head) []byte {
	var beat object
	if json.Unmarshal(text, &beat) != nil {
		return text
	}
	slices.Sort(h.Running)
	beat["running"] = append([]string{}, h.Running...)
	out, err := json.Marshal(beat)
	if err != nil {
		return text
	}
	return out
}

// answerAnything answers what a driver sends while it ends. The caller holds mu.
func (c *session) answerAnything(h *head) {
	answer := object{"id": h.ID}
	switch h.Type {
	case "register":
		answer["type"] = "registered"
	case "complete":
		answer["type"], answer["outcome"] = "completed", "completed"
	case "deregister":
		answer["type"] = "deregistered"
	case "progress":
		outcomes := make([]string, len(h.Reports))
		for i := range outcomes {
			outcomes[i] = "taken"
		}
		answer["type"], answer["outcomes"] = "progressed", outcomes
	default:
		answer["type"], answer["code"], answer["message"] = "error", "unavailable", "the scenario is over"
	}
	_ = c.write(answer)
}

func (s *servers) refuseAll(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *servers) refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse
}

func (s *servers) setRegistered(registered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = registered
}

func (s *servers) isRegistered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registered
}

func (s *servers) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// checkNumber reports a hello of another epoch, or whose connection is not higher than the ones
// before.
func (s *servers) checkNumber(h *head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == "" {
		s.epoch = h.Epoch
	}
	if h.Epoch != s.epoch || h.Connection <= s.number {
		s.t.Errorf("hello has the connection %d of epoch %s, expected more than %d of %s",
			h.Connection, h.Epoch, s.number, s.epoch)
	}
	s.number = h.Connection
}

// write sends one value as a frame.
func (c *session) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.writeText(text)
}

func (c *session) writeText(text []byte) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, text)
}

// writeRaw sends bytes beside the library, in pieces.
func (c *session) writeRaw(pieces ...[]byte) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	if err := c.raw.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	for _, piece := range pieces {
		if _, err := c.raw.Write(piece); err != nil {
			return err
		}
	}
	_ = c.raw.SetWriteDeadline(time.Time{}) // fails if the driver has left because of these bytes
	return nil
}

// drip sends a text of which each byte is a fragment of its own.
func (c *session) drip(text []byte) error {
	const (
		opText = 0x01
		final  = 0x80
	)
	pieces := make([][]byte, len(text))
	for i, b := range text {
		first := byte(0)
		if i == 0 {
			first = opText
		}
		if i == len(text)-1 {
			first |= final
		}
		pieces[i] = []byte{first, 1, b}
	}
	return c.writeRaw(pieces...)
}

// errEnded is the error of next behind the end of a session.
var errEnded = errors.New("the connection has ended")

// next returns the next message that no step has taken.
func (c *session) next(want string) (message, error) {
	if len(c.held) > 0 {
		m := c.held[0]
		c.held = c.held[1:]
		return m, nil
	}
	m := waittest.Receive(c.servers.t, want, c.inbox)
	if m.text == nil && !m.end {
		return m, errEnded
	}
	return m, nil
}
