package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestBodyThatNeverComes: the answer does not wait for the body, unless the body decides about it,
// and then not for long.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	const bearer = "Authorization: Bearer acme-token\r\n"
	for name, c := range map[string]struct {
		request string
		timeout time.Duration
		status  int
	}{
		"no route":               {"POST /nope HTTP/1.1\r\n", time.Hour, http.StatusNotFound},
		"no such method":         {"PUT /v1/jobs HTTP/1.1\r\n", time.Hour, http.StatusMethodNotAllowed},
		"no token":               {"POST /v1/jobs HTTP/1.1\r\n", time.Hour, http.StatusUnauthorized},
		"no token, cancel":       {"POST /v1/jobs/" + apitest.JobID + "/cancel HTTP/1.1\r\n", time.Hour, http.StatusUnauthorized},
		"foreign origin":         {"POST /v1/jobs HTTP/1.1\r\nOrigin: https://evil.example\r\n", time.Hour, http.StatusForbidden},
		"body of no use":         {"GET /healthz HTTP/1.1\r\n", time.Hour, http.StatusOK},
		"body of no use, listed": {"GET /v1/jobs HTTP/1.1\r\n" + bearer, time.Hour, http.StatusOK},
		"refused session":        {"GET /v1/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", time.Hour, http.StatusUnauthorized},
		"session elsewhere":      {"GET /nope HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", time.Hour, http.StatusNotFound},
		"submit":                 {"POST /v1/jobs HTTP/1.1\r\n" + bearer, 50 * time.Millisecond, http.StatusBadRequest},
	} {
		for _, length := range []string{"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"} {
			t.Run(name+", "+strings.Fields(length)[0], func(t *testing.T) {
				t.Parallel()
				f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", BodyTimeout: c.timeout}, apitest.WithTokens, func(d *api.Deps) {
					d.Sessions = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
				})
				start(t, f)
				conn := dial(t, f.Addr())
				if _, err := fmt.Fprintf(conn, "%sHost: localhost\r\n%s\r\n", c.request, length); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal("no answer:", err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != c.status || !resp.Close {
					t.Errorf("status %d, closes %t, expected %d and a connection that ends", resp.StatusCode, resp.Close, c.status)
				}
			})
		}
	}
}

// TestUnreadBodyEndsTheConnection: it is not held for a client that sends nothing.
func TestUnreadBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", BodyTimeout: 50 * time.Millisecond})
	start(t, f)
	conn := dial(t, f.Addr())
	if _, err := fmt.Fprint(conn, "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, err := r.Peek(r.Buffered() + 1); err == nil || isTimeout(err) {
		t.Errorf("the connection is still there: %v", err)
	}
}

// TestReadBodyKeepsTheConnection, if the client sends what it announced.
func TestReadBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	start(t, f)
	conn := dial(t, f.Addr())
	r := bufio.NewReader(conn)
	for _, job := range []string{ttsJob, "{", ttsJob} {
		if _, err := fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(job), job); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Discard(int(resp.ContentLength)); err != nil || resp.Close {
			t.Fatalf("status %d, closes %t, %v", resp.StatusCode, resp.Close, err)
		}
	}
}

// TestSessionsHaveNoDeadline: a deadline that stayed would end each session.
func TestSessionsHaveNoDeadline(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 4} {
		hijacked := make(chan error, 1)
		f := apitest.New(t, api.Config{}, func(d *api.Deps) {
			d.Sessions = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					err = conn.Close()
				}
				hijacked <- err
			})
		})
		server := httptest.NewUnstartedServer(f.Handler())
		watched := &watchedListener{Listener: server.Listener}
		server.Listener = watched
		server.Start()
		t.Cleanup(server.Close)
		conn := dial(t, server.Listener.Addr().String())
		if _, err := fmt.Fprintf(conn, "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: %d\r\n\r\n", length); err != nil {
			t.Fatal(err)
		}
		if err := soon(t, hijacked, "the session"); err != nil {
			t.Fatal(err)
		}
		if last := watched.readDeadline(); !last.IsZero() {
			t.Errorf("a session with %d bytes of body has the deadline %v", length, last)
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(waittest.Limit)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func isTimeout(err error) bool {
	var netError net.Error
	ok := errors.As(err, &netError)
	return ok && netError.Timeout()
}

// watchedListener remembers the last read deadline of its connections.
type watchedListener struct {
	net.Listener
	mu   sync.Mutex
	last time.Time
}

func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, listener: l}, nil
}

func (l *watchedListener) readDeadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

type watchedConn struct {
	net.Conn
	listener *watchedListener
}

func (c *watchedConn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	c.listener.last = t
	c.listener.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *watchedConn) SetDeadline(t time.Time) error {
	c.listener.mu.Lock()
	c.listener.last = t
	c.listener.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

// TestLargeBodyGetsItsAnswer: a client that sends a body of any size, without asking before, reads
// the refusal and not the end of its connection. Content-Length decides before the body is read.
func TestLargeBodyGetsItsAnswer(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", MaxPayloadBytes: 1 << 20}, apitest.WithTokens)
	start(t, f)
	const bytes = 24 << 20 // more than the buffers of both ends
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"submit":   {"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer acme-token\r\n", http.StatusRequestEntityTooLarge},
		"explain":  {"POST /v1/explain HTTP/1.1\r\nAuthorization: Bearer root-token\r\n", http.StatusRequestEntityTooLarge},
		"no token": {"POST /v1/jobs HTTP/1.1\r\n", http.StatusUnauthorized},
		"no route": {"POST /nope HTTP/1.1\r\n", http.StatusNotFound},
		"no body":  {"GET /v1/jobs HTTP/1.1\r\nAuthorization: Bearer acme-token\r\n", http.StatusOK},
	} {
		for _, chunked := range []bool{false, true} {
			// One after the other: a client that does not get to run for a second counts as silent.
			t.Run(fmt.Sprintf("%s, chunked %t", name, chunked), func(t *testing.T) {
				conn := dial(t, f.Addr())
				head, part := fmt.Sprintf("Content-Length: %d\r\n\r\n", bytes), strings.Repeat("x", 1<<20)
				if chunked {
					head, part = "Transfer-Encoding: chunked\r\n\r\n", "100000\r\n"+part+"\r\n"
				}
				if _, err := fmt.Fprint(conn, c.request+"Host: localhost\r\n"+head); err != nil {
					t.Fatal(err)
				}
				for sent := range 24 {
					if _, err := io.WriteString(conn, part); err != nil {
						t.Fatalf("after %d MiB of the body: %v, expected that all can be sent", sent, err)
					}
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("no answer: %v, expected status %d", err, c.status)
				}
				defer resp.Body.Close()
				if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != c.status {
					t.Errorf("status %d, %q, %v, expected status %d", resp.StatusCode, text, err, c.status)
				}
			})
		}
	}
}

// TestLargeBodyThatIsAskedFor: a client that waits for 100 Continue gets the refusal instead.
func TestLargeBodyThatIsAskedFor(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", MaxPayloadBytes: 1 << 20}, apitest.WithTokens)
	start(t, f)
	conn := dial(t, f.Addr())
	if _, err := fmt.Fprint(conn, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer acme-token\r\n"+
		"Expect: 100-continue\r\nContent-Length: 4000000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal("no answer:", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, expected %d", resp.StatusCode, http.StatusRequestEntityTooLarge)
	}
}
