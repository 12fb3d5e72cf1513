package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// handshake asks for a session as an agent does, but for what change does.
func (s *server) handshake(change func(r *http.Request)) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://gateway"+frame.Path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer gpu", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": frame.Protocol,
	} {
		r.Header.Set(name, value)
	}
	change(r)
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func expectRefusal(t *testing.T, resp *http.Response, status int, code, field string) (message string) {
	t.Helper()
	var body struct{ Code, Message, Field string }
	if resp.StatusCode != status {
		t.Fatalf("status %s, want %d", resp.Status, status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Code != code || body.Field != field || body.Message == "" {
		t.Errorf("body %+v, error %v, want code %s and field %s", body, err, code, field)
	}
	if retry := resp.Header.Get("Retry-After"); (retry == "1") != (status == http.StatusServiceUnavailable) {
		t.Errorf("Retry-After is %q", retry)
	}
	return body.Message
}

func TestRefusedHandshakes(t *testing.T) {
	t.Parallel()
	set := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	inBubble(t, func(t *testing.T, s *server) {
		for _, c := range []struct {
			change      func(*http.Request)
			status      int
			code, field string
		}{
			{set("Authorization"), http.StatusUnauthorized, "unauthenticated", "Authorization"},
			{set("Authorization", "Bearer other"), http.StatusUnauthorized, "unauthenticated", "Authorization"},
			{set("Authorization", "Basic gpu"), http.StatusUnauthorized, "unauthenticated", "Authorization"},
			{set("Authorization", "Bearer"), http.StatusUnauthorized, "unauthenticated", "Authorization"},
			{func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=gpu" }, http.StatusUnauthorized, "unauthenticated", "Authorization"},
			{set("Origin", "http://gateway"), http.StatusForbidden, "permission_denied", "Origin"},
			{set("Sec-Websocket-Protocol"), http.StatusBadRequest, "invalid_argument", "Sec-WebSocket-Protocol"},
			{set("Sec-Websocket-Protocol", "freeslot.v1"), http.StatusBadRequest, "invalid_argument", "Sec-WebSocket-Protocol"},
			{set("Upgrade"), http.StatusUpgradeRequired, "invalid_argument", "Upgrade"},
			{func(r *http.Request) { r.URL.Path += "/other" }, http.StatusNotFound, "not_found", ""},
		} {
			expectRefusal(t, s.handshake(c.change), c.status, c.code, c.field)
		}
		if resp := s.handshake(nothing); resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("a good handshake has status %s", resp.Status)
		}
		if got := s.metric("freeslot_gateway_refused_total", "unauthenticated"); got != 5 {
			t.Errorf("%v handshakes were refused for their token", got)
		}
	})
}

func TestRefusedHellos(t *testing.T) {
	t.Parallel()
	for hello, c := range map[string]struct {
		code, field string
		close       websocket.StatusCode
	}{
		`{"type":"heartbeat","id":1}`:                                     {"invalid_argument", "type", frame.CloseDefect},
		`{"type":"hello","epoch":"e","connection":1}`:                     {"invalid_argument", "node", frame.CloseDefect},
		`{"type":"hello","node":"a b","epoch":"e","connection":1}`:        {"invalid_argument", "node", frame.CloseDefect},
		`{"type":"hello","node":"gpu-1","connection":1}`:                  {"invalid_argument", "epoch", frame.CloseDefect},
		`{"type":"hello","node":"gpu-1","epoch":"import","connection":1}`: {"invalid_argument", "epoch", frame.CloseDefect},
		`{"type":"hello","node":"gpu-1","epoch":"e"}`:                     {"invalid_argument", "connection", frame.CloseDefect},
		`{"type":"hello","node":"gpu-1","epoch":"e","connection":1,"version":"0123456789012345678901234567890123456789012345678901234567890123456789"}`: {"invalid_argument", "version", frame.CloseDefect},
		`{"type":"hello","node":"cpu-1","epoch":"e","connection":1}`:                                                                                    {"permission_denied", "node", frame.CloseRights},
		`[{"type":"hello","node":"cpu-1","epoch":"e","connection":1,"check":true},{"type":"deregister","id":1}]`:                                        {"permission_denied", "node", frame.CloseRights},
	} {
		t.Run(hello[:min(60, len(hello))], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				s.cell.link = func() (cell.NodeLink, error) {
					t.Error("the cell is asked for a node that is not the agent's")
					return cell.NodeLink{}, nil
				}
				p := s.dial("gpu", false)
				p.send(hello)
				p.expect(`{"type":"error","code":"` + c.code + `","message":"…","field":"` + c.field + `"}`)
				p.ends(c.close)
				synctest.Wait()
				if refused, pending := s.metric("freeslot_gateway_refused_total", c.code), s.pending; refused != 1 || pending != 0 {
					t.Errorf("%v refused, %d pending", refused, pending)
				}
			})
		})
	}
}

func TestHelloWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.cell.link = func() (cell.NodeLink, error) { return cell.NodeLink{}, errors.New("redis is away") }
		p := s.dial("gpu", false)
		p.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":1}`)
		p.expect(`{"type":"error","code":"unavailable","message":"…"}`)
		p.ends(websocket.StatusTryAgainLater)
		synctest.Wait()
		if s.agents != 0 || s.open.Len() != 0 || len(s.live) != 0 {
			t.Errorf("%d agents, %d and %d sessions are left", s.agents, s.open.Len(), len(s.live))
		}
	})
}

func TestNoHello(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		p := s.dial("gpu", false)
		p.expect(`{"type":"error","code":"invalid_argument","message":"no hello within 5s"}`)
		p.ends(frame.CloseDefect)
	})
}

// TestHelloWithMore: the messages of one frame are taken in their order.
func TestHelloWithMore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.dial("gpu", false)
		p.send(`[{"type":"hello","node":"gpu-1","epoch":"e1","connection":1},{"type":"heartbeat","id":1}]`)
		p.welcomed()
		p.expect(`{"type":"beat","id":1}`)
		if epoch, token, ok := s.held("gpu-1", p.session); !ok || epoch != "e1" || token.Name != "gpu" {
			t.Errorf("held: epoch %s, token %s, %v", epoch, token.Name, ok)
		}
		for _, other := range [][2]string{{"gpu-2", p.session}, {"gpu-1", "x"}, {"gpu-1", ""}, {"", ""}} {
			if _, _, ok := s.held(other[0], other[1]); ok {
				t.Errorf("session %q of node %q is held", other[1], other[0])
			}
		}
		_ = p.conn.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		if _, _, ok := s.held("gpu-1", p.session); ok {
			t.Error("a session that ended is held")
		}
	})
}

func TestMaxAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 2)
		s.connect()
		second := s.connect()
		full := s.dial("gpu", false)
		full.send(`{"type":"hello","node":"gpu-3","epoch":"e1","connection":1}`)
		full.expect(`{"type":"error","code":"overloaded","message":"the replica has 2 agents, which is its limit","retry_after_ms":1000}`)
		full.ends(websocket.StatusTryAgainLater)
		_ = second.conn.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		s.connect()
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{HeartbeatLimit: 1}, {MaxAgents: 1}} {
		if _, err := New(cfg, nil, nil); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	for limit, want := range map[time.Duration]time.Duration{100 * time.Millisecond: 50 * time.Millisecond, 8 * time.Second: 500 * time.Millisecond, time.Minute: time.Second} {
		cfg := Config{HeartbeatLimit: limit}
		if got := cfg.beatTimeout(); got != want {
			t.Errorf("a limit of %s gives a heartbeat %s, want %s", limit, got, want)
		}
	}
}

func nothing(*http.Request) {}
