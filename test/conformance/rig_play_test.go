package conformance

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/internal/wire"
)

// What stands for all addresses, and for the path of the token's file, in what a driver is told.
const (
	addressesText = "$servers"
	tokenFileText = "$token_file"
)

// player plays one scenario against one driver.
type player struct {
	t         *testing.T
	driver    *driver
	servers   *servers
	vars      pagetest.Variables
	sessions  map[string]*session
	tokenFile string
}

// play plays a scenario.
func play(t *testing.T, lang *language, kind string, sc *scenario) {
	t.Helper()
	p := &player{
		t: t, servers: newServers(t, kind, sc.Servers), vars: pagetest.Variables{}, sessions: map[string]*session{},
		tokenFile: filepath.Join(t.TempDir(), "token"),
	}
	for name, value := range sc.Let {
		p.vars[name] = strings.Repeat(value.Repeat, value.Times)
	}
	p.driver = startDriver(t, lang, kind)
	for i, step := range sc.Steps {
		for verb, value := range step {
			p.step(i+1, verb, value)
		}
	}
	p.finish()
}

// step plays one step: "verb", or "SESSION verb" for a session that a capital letter names.
func (p *player) step(n int, verb string, value any) {
	p.t.Helper()
	p.t.Logf("step %d: %s: %.200s", n, verb, asJSON(p.t, value))
	if play, ok := plainSteps[verb]; ok {
		play(p, value)
		return
	}
	name, verb, _ := strings.Cut(verb, " ")
	if play, ok := openingSteps[verb]; ok {
		play(p, name, objectOf(p.t, value))
		return
	}
	play, ok := sessionSteps[verb]
	s := p.sessions[name]
	if !ok || s == nil {
		p.t.Fatalf("step %d: there is no step %q, or no session %q yet", n, verb, name)
	}
	play(p, s, value)
}

// The steps. README.md describes them.
var (
	plainSteps = map[string]func(p *player, v any){
		"token file":   (*player).writeToken,
		"tell":         (*player).tell,
		"answer":       (*player).answer,
		"event":        (*player).event,
		"refuse":       (*player).refuse,
		"refuse until": (*player).refuseUntil,
		"serve":        (*player).serve,
		"nothing":      (*player).nothing,
	}
	openingSteps = map[string]func(p *player, name string, v object){
		"accepts": func(p *player, name string, v object) { p.accept(name, v) },
		"opens":   (*player).open,
		"reopens": (*player).reopen,
	}
	sessionSteps = map[string]func(p *player, s *session, v any){
		"welcomes":    func(p *player, s *session, v any) { p.welcome(s, objectOf(p.t, v)) },
		"sends":       (*player).send,
		"sends text":  (*player).sendText,
		"sends bytes": (*player).sendBytes,
		"drips":       (*player).drip,
		"receives":    (*player).receive,
		"beats":       (*player).beat,
		"reports":     (*player).reports,
		"closes":      (*player).close,
		"is cut":      (*player).cut,
		"is silent":   (*player).silence,
		"is deaf":     (*player).deafen,
		"ends":        (*player).end,
	}
)

// text returns a value of a step as JSON, with the values of placeholders.
func (p *player) text(v any) string {
	p.t.Helper()
	text := p.vars.Substitute(string(asJSON(p.t, v)))
	return strings.NewReplacer(
		addressesText, strings.Join(p.servers.addresses, ","), tokenFileText, p.tokenFile,
	).Replace(text)
}

// writeToken writes the file of the token.
func (p *player) writeToken(v any) {
	p.t.Helper()
	if err := os.WriteFile(p.tokenFile, fmt.Append(nil, v, "\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) tell(v any) {
	p.t.Helper()
	all, several := v.([]any)
	if !several {
		all = []any{v}
	}
	for _, one := range all {
		p.driver.tell(p.text(one))
	}
}

// answer waits for the driver's next answer to a command.
func (p *player) answer(v any) {
	p.t.Helper()
	id, _ := objectOf(p.t, v)["id"].(int)
	got := p.driver.find("the answer "+p.text(v), func(l line) bool { return l.ID == id && l.Event == "" })
	if err := p.vars.Match(asJSON(p.t, v), got); err != nil {
		p.t.Fatalf("the driver answered %.500s: %v", got, err)
	}
}

// event waits for the driver's next event of this name and attempt.
func (p *player) event(v any) {
	p.t.Helper()
	want := objectOf(p.t, v)
	got := p.driver.find("the event "+p.text(v), func(l line) bool {
		return l.Event == want["event"] && (want["attempt"] == nil || l.Attempt == want["attempt"])
	})
	if err := p.vars.Match(asJSON(p.t, v), got); err != nil {
		p.t.Fatalf("the driver showed %.500s: %v", got, err)
	}
}

// handshake returns the next handshake whose driver still waits for it.
func (p *player) handshake(want string) *handshake {
	p.t.Helper()
	for {
		h := waittest.Receive(p.t, want, p.servers.handshakes)
		if h.r.Context().Err() == nil {
			return h
		}
		close(h.done)
	}
}

// refuse answers the next handshake with status, header and body.
func (p *player) refuse(v any) {
	p.t.Helper()
	o := objectOf(p.t, v)
	status, _ := o["status"].(int)
	header := map[string]string{}
	for name, value := range objectOf(p.t, o["header"]) {
		header[name] = fmt.Sprint(value)
	}
	p.handshake("a handshake to refuse").refuse(status, header, []byte(p.text(o["body"])))
}

// refuseUntil refuses each handshake until the driver shows an event.
func (p *player) refuseUntil(v any) {
	p.t.Helper()
	p.servers.refuseAll(true)
	for more := true; more; {
		select {
		case h := <-p.servers.handshakes:
			h.refuse(http.StatusServiceUnavailable, nil, []byte(refusal))
		default:
			more = false
		}
	}
	p.event(v)
	p.servers.refuseAll(false)
}

// accept makes a session of the next handshake.
func (p *player) accept(name string, v object) *session {
	p.t.Helper()
	h := p.handshake("a handshake for session " + name)
	if token, ok := v["token"]; ok && h.token() != token {
		p.t.Fatalf("the handshake has the token %q, expected %q", h.token(), token)
	}
	if than, ok := v["elsewhere"].(string); ok && p.sessions[than].address == h.address {
		p.t.Fatalf("session %s comes to %s, where session %s is or was; expected another address", name, h.address, than)
	}
	want := wire.Protocol
	if p.servers.kind == "node" {
		want = frame.Protocol
	}
	offered := h.r.Header.Get("Sec-WebSocket-Protocol")
	if offered != want && (p.servers.kind == "node" || offered != "") {
		p.t.Fatalf("the handshake offers the subprotocol %q, expected %q", offered, want)
	}
	s := p.servers.accept(h, name)
	p.sessions[name] = s
	return s
}

// welcome sends a welcome. The fields of v replace its own; null leaves one out.
func (p *player) welcome(s *session, v object) {
	p.t.Helper()
	welcome := object{
		"type": "welcome", "protocol": wire.Protocol, "session_id": s.id, "replica": "replica-" + s.name, "version": "1.0",
		"max_payload_bytes": 262144, "max_batch": 1000, "max_frame_bytes": 8388608,
	}
	if p.servers.kind == "node" {
		welcome = object{
			"type": "welcome", "protocol": frame.Protocol, "session": s.id, "replica": "replica-" + s.name, "version": "1.0",
			"heartbeat_limit_ms": 60000, "max_frame_bytes": frame.MaxFrameBytes, "inline_bytes": frame.InlineBytes,
			"max_requests": frame.MaxRequests, "max_slots": frame.MaxSlots, "max_attempts": frame.MaxAttempts,
			"allows": object{"token": "gpu-7", "nodes": []string{"gpu-7"}},
		}
	}
	for name, value := range v {
		if value == nil {
			delete(welcome, name)
			continue
		}
		welcome[name] = value
	}
	p.send(s, welcome)
}

// open starts the driver's client or worker, up to its first session. The fields of v go into the
// command; those of welcome into the welcome.
func (p *player) open(name string, v object) {
	p.t.Helper()
	command := object{"id": 1, "do": "dial", "url": addressesText, "token": "secret", "min_backoff_ms": 10, "max_backoff_ms": 50}
	if p.servers.kind == "node" {
		command = object{
			"id": 1, "do": "start", "gateway": addressesText, "token": "secret", "node": "gpu-7", "slots": 2,
			"services": []object{{"name": "tts", "version": "2.1"}}, "heartbeat_ms": 100, "min_backoff_ms": 10,
			"max_backoff_ms": 50,
		}
	}
	v = maps.Clone(v)
	welcome := objectOf(p.t, v["welcome"])
	delete(v, "welcome")
	maps.Copy(command, v)
	handshake := object{"token": command["token"]}
	if command["token_file"] != nil {
		delete(command, "token")
		delete(handshake, "token")
	}
	p.tell(command)
	s := p.accept(name, handshake)
	if p.servers.kind == "node" {
		p.hello(s)
	}
	p.welcome(s, welcome)
	if p.servers.kind == "node" {
		p.register(s)
	}
	p.answer(object{"id": 1})
}

// register answers a register and the heartbeat that follows.
func (p *player) register(s *session) {
	p.t.Helper()
	p.receive(s, object{"type": "register", "id": "…register", "profile": "…", "…": "…"})
	p.send(s, object{"type": "registered", "id": "…register"})
	delete(p.vars, "register")
	p.beat(s, nil)
}

// reopen takes the driver back after the end of a session, or beside one. A node has registered
// before, and so sends a heartbeat at once.
func (p *player) reopen(name string, v object) {
	p.t.Helper()
	v = maps.Clone(v)
	welcome := objectOf(p.t, v["welcome"])
	delete(v, "welcome")
	s := p.accept(name, v)
	if p.servers.kind == "node" {
		p.hello(s)
	}
	p.welcome(s, welcome)
	if p.servers.kind == "node" && v["beat"] != false {
		p.beat(s, nil)
	}
}

// hello takes the hello of a session. The epoch stays the same in a scenario.
func (p *player) hello(s *session) {
	p.t.Helper()
	p.receive(s, object{"type": "hello", "node": "gpu-7", "epoch": "…epoch", "connection": "…", "version": "…", "…": "…"})
}

// send sends an object as a frame, and a list as one frame with an array if the driver takes that.
func (p *player) send(s *session, v any) {
	p.t.Helper()
	frames := []any{v}
	if all, several := v.([]any); several && !s.batch {
		frames = all
	}
	for _, one := range frames {
		p.note(s, one)
		if err := s.writeText([]byte(p.text(one))); err != nil && !s.deaf {
			p.t.Fatalf("session %s: send %s: %v", s.name, p.text(one), err)
		}
	}
}

// note tells the servers what a frame answers.
func (p *player) note(s *session, frame any) {
	p.t.Helper()
	all, several := frame.([]any)
	if !several {
		all = []any{frame}
	}
	for _, one := range all {
		var h head
		if err := json.Unmarshal([]byte(p.text(one)), &h); err != nil {
			continue // it is for the driver to judge
		}
		switch h.Type {
		case "registered":
			p.servers.setRegistered(true)
		case "completed":
			p.servers.completed(s.name, string(h.ID))
		}
	}
}

// sendText sends a text as it is.
func (p *player) sendText(s *session, v any) {
	p.t.Helper()
	if err := s.writeText(fmt.Append(nil, v)); err != nil {
		p.t.Fatalf("session %s: %v", s.name, err)
	}
}

// sendBytes sends hexadecimal bytes beside the frames.
func (p *player) sendBytes(s *session, v any) {
	p.t.Helper()
	data, err := hex.DecodeString(fmt.Sprint(v))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := s.writeRaw(data); err != nil {
		p.t.Fatalf("session %s: %v", s.name, err)
	}
}

func (p *player) drip(s *session, v any) {
	p.t.Helper()
	if err := s.drip([]byte(p.text(v))); err != nil {
		p.t.Fatalf("session %s: %v", s.name, err)
	}
}

// receive takes the next message of a session, or as many as a list has, in any order.
func (p *player) receive(s *session, v any) {
	p.t.Helper()
	left, several := v.([]any)
	if !several {
		left = []any{v}
	}
	left = slices.Clone(left)
	for len(left) > 0 {
		got, err := s.next("a message of session " + s.name + ": " + p.text(left))
		if err != nil || got.end {
			p.t.Fatalf("session %s ended (close code %d), expected %s", s.name, got.close, p.text(left))
		}
		found, failures := -1, ""
		for i, pattern := range left {
			trial := maps.Clone(p.vars)
			if err = trial.Match(asJSON(p.t, pattern), got.text); err == nil {
				p.vars, found = trial, i
				break
			}
			failures += "\n" + err.Error()
		}
		if found < 0 {
			p.t.Fatalf("session %s received %.500s, which fits nothing:%s", s.name, got.text, failures)
		}
		left = slices.Delete(left, found, found+1)
	}
}

// beat answers the next heartbeat that fits v's when with v's answer. Other heartbeats get an empty
// beat.
func (p *player) beat(s *session, v any) {
	p.t.Helper()
	o := objectOf(p.t, v)
	when := object{"type": "heartbeat", "id": "…", "…": "…"}
	maps.Copy(when, objectOf(p.t, o["when"]))
	answer := object{"type": "beat"}
	if o["answer"] != nil {
		answer = object{}
		if err := json.Unmarshal([]byte(p.text(o["answer"])), &answer); err != nil {
			p.t.Fatal(err)
		}
	}
	pattern := []byte(p.text(when))
	b := &beatStep{
		fits:   func(beat []byte) error { return pagetest.Variables{}.Match(pattern, beat) },
		answer: answer, done: make(chan struct{}),
	}
	s.mu.Lock()
	s.beat = b
	s.mu.Unlock()
	waittest.Receive(p.t, "a heartbeat that fits "+string(pattern), b.done, func() any {
		s.mu.Lock()
		defer s.mu.Unlock()
		return b.misses[max(0, len(b.misses)-3):]
	})
}

// reports takes progress of one attempt until the value of until comes. There must be fewer reports
// than the handler made, and their numbers must rise.
func (p *player) reports(s *session, v any) {
	p.t.Helper()
	o := objectOf(p.t, v)
	fewer, _ := o["fewer_than"].(int)
	until := p.text(o["until"])
	var last int64
	for n := 1; ; n++ {
		got, err := s.next("progress " + until)
		if err != nil {
			p.t.Fatalf("session %s: %v", s.name, err)
		}
		var m struct {
			Type    string
			ID      int64
			Reports []struct {
				Attempt string
				Seq     int64
				Value   json.RawMessage
			}
		}
		if err := json.Unmarshal(got.text, &m); err != nil || m.Type != "progress" || len(m.Reports) != 1 ||
			m.Reports[0].Attempt != o["attempt"] || m.Reports[0].Seq <= last {
			p.t.Fatalf("received %s, expected progress of %v with a higher seq than %d", got.text, o["attempt"], last)
		}
		last = m.Reports[0].Seq
		p.send(s, object{"type": "progressed", "id": m.ID, "outcomes": []string{"taken"}})
		if string(m.Reports[0].Value) == until {
			if n >= fewer {
				p.t.Errorf("%d reports came, expected fewer than %d", n, fewer)
			}
			return
		}
	}
}

// serve answers a request of HTTP beside a session.
func (p *player) serve(v any) {
	p.t.Helper()
	o := objectOf(p.t, v)
	got := waittest.Receive(p.t, "a request of HTTP", p.servers.posts)
	name, _ := o["session"].(string)
	for header, want := range map[string]string{
		"Authorization": "Bearer secret", frame.NodeHeader: "gpu-7", frame.SessionHeader: p.sessions[name].id,
	} {
		if value := got.r.Header.Get(header); value != want {
			p.t.Errorf("the request has %s: %q, expected %q", header, value, want)
		}
	}
	if got.r.Method != "POST" || got.r.URL.Path != o["path"] {
		p.t.Fatalf("the driver asked for %s %s, expected POST %s", got.r.Method, got.r.URL.Path, o["path"])
	}
	if err := p.vars.Match(asJSON(p.t, o["body"]), got.body); err != nil {
		p.t.Fatalf("the body is %.300s: %v", got.body, err)
	}
	if o["unanswered"] == true {
		return
	}
	status, _ := o["status"].(int)
	got.answer <- reply{max(status, 200), []byte(p.text(o["reply"]))}
}

// nothing checks that the sessions received no more than the steps have taken.
func (p *player) nothing(any) {
	p.t.Helper()
	for name, s := range p.sessions {
		for open := true; open; {
			var got message
			select {
			case got, open = <-s.inbox:
			default:
				open = false
			}
			if got.text != nil && !s.cut {
				p.t.Errorf("session %s received more than the scenario has: %.300s", name, got.text)
			}
			if got.end {
				s.held = append(s.held, got)
			}
		}
	}
}

func (p *player) close(s *session, v any) {
	p.t.Helper()
	code, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil {
		p.t.Fatal(err)
	}
	s.writes.Lock()
	defer s.writes.Unlock()
	_ = s.conn.Close(websocket.StatusCode(code), "") // the driver may not answer
}

// cut ends the connection as a crash does.
func (p *player) cut(s *session, _ any) {
	s.mu.Lock()
	s.cut = true
	s.mu.Unlock()
	_ = s.raw.Close()
}

// silence makes the server answer nothing any more, not even pings.
func (p *player) silence(s *session, _ any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent, s.cut = true, true
}

// deafen makes the server read nothing any more, not even the driver's close, until a step waits for
// the session's end. A node's next heartbeat shows that the reader waits.
func (p *player) deafen(s *session, _ any) {
	p.t.Helper()
	s.deafen <- struct{}{}
	waittest.Until(p.t, "a message behind which the reader waits", func() bool { return len(s.deafen) == 0 })
	s.deaf = true
}

// end waits until the driver has ended the connection, with a close code if v has one.
func (p *player) end(s *session, v any) {
	p.t.Helper()
	if s.deaf {
		s.deaf = false
		close(s.hear)
	}
	got, err := s.next("the end of session " + s.name)
	if err != nil || !got.end {
		p.t.Fatalf("session %s received %.300s, expected its end", s.name, got.text)
	}
	if v != nil && v != got.close {
		p.t.Errorf("session %s ended with the close code %d, expected %v", s.name, got.close, v)
	}
}

// finish ends the driver.
func (p *player) finish() {
	p.t.Helper()
	p.nothing(nil)
	p.servers.mu.Lock()
	p.servers.ending = true
	p.servers.mu.Unlock()
	p.driver.finish()
	for len(p.servers.posts) > 0 {
		p.t.Errorf("no step took the request of HTTP %.300s", (<-p.servers.posts).body)
	}
	if n := len(p.servers.handshakes); n > 0 {
		p.t.Errorf("no step took %d handshakes", n)
	}
}
