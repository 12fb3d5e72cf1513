package listener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// serveStrangers answers with the sender's address. The token "good" is valid.
func serveStrangers(t *testing.T, limits Limits) *Server {
	t.Helper()
	s := New("listen on", "127.0.0.1:0", &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if owner, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer good"); ok {
			Prove(r.Context(), owner)
		}
		sender := r.RemoteAddr
		if ByHTTPS(r) {
			sender += " by https"
		}
		_, _ = io.WriteString(w, sender)
	})}, nil, limits)
	if err := s.Start(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Stop(over) // it cuts the silent connections
	})
	return s
}

// dialFrom connects from an address of the loopback.
func dialFrom(t *testing.T, s *Server, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(waittest.Context(t), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(waittest.Limit)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request with a header and returns the body of the answer.
func ask(c net.Conn, header string) (string, error) {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"+header+"\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// closed fails unless the server closes c.
func closed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("%s: read gives %v, expected that the server closes the connection", what, err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

const good = "Authorization: Bearer good\r\n"

// TestSilentStrangers is the trial of 250 silent connections a second: every victim is served while
// strangers from many addresses, and from its own, go on connecting.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		"many addresses": {Strangers: 32, BoundLoopback: true},
		"one address":    {Strangers: 1000, PerAddress: 8, BoundLoopback: true},
		"loopback":       {Strangers: 32, PerAddress: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStrangers(t, limits)
			spread := 1 // each stranger has an address of its own
			if limits.PerAddress > 0 {
				spread = 0
			}
			first, served := dialFrom(t, s, "127.0.0.2"), 0
			known := dialFrom(t, s, "127.0.0.2")
			if _, err := ask(known, good); err != nil {
				t.Fatalf("a first call with a token: %v, expected an answer", err)
			}
			for victim := range 60 {
				for i := range 4 {
					dialFrom(t, s, fmt.Sprintf("127.0.0.%d", 2+i*spread))
				}
				if _, err := ask(dialFrom(t, s, "127.0.0.100"), good); err == nil {
					served++
				} else {
					t.Logf("victim %d: %v", victim, err)
				}
			}
			if served != 60 {
				t.Errorf("%d of 60 victims were served, expected all", served)
			}
			closed(t, "the oldest silent connection", first)
			if _, err := ask(known, ""); err != nil {
				t.Errorf("a connection that has shown a token: %v, expected that it stays open", err)
			}
		})
	}
}

// TestProxies: senders are named by trusted proxies alone.
func TestProxies(t *testing.T) {
	t.Parallel()
	s := serveStrangers(t, Limits{
		PerAddress: 2, BoundLoopback: true, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")},
	})
	const forwarded = "X-Forwarded-For: 1.1.1.1, 203.0.113.7, 127.0.0.9\r\n"
	if got, err := ask(dialFrom(t, s, "127.0.0.9"), forwarded); got != "203.0.113.7:0" || err != nil {
		t.Errorf("by X-Forwarded-For of a proxy the sender is %q, %v, expected 203.0.113.7:0", got, err)
	}
	stranger := dialFrom(t, s, "127.0.0.8")
	if got, err := ask(stranger, forwarded); got != stranger.LocalAddr().String() || err != nil {
		t.Errorf("by X-Forwarded-For of a stranger the sender is %q, %v, expected %s", got, err, stranger.LocalAddr())
	}
	for header, want := range map[string]string{
		"X-Forwarded-Proto: https\r\n": " by https", "X-Forwarded-Proto: http\r\n": "",
		"X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n": "",
	} {
		if got, err := ask(dialFrom(t, s, "127.0.0.9"), forwarded+header); got != "203.0.113.7:0"+want || err != nil {
			t.Errorf("by %q of a proxy the sender is %q, %v; want 203.0.113.7:0%s", header, got, err, want)
		}
		client := dialFrom(t, s, "127.0.0.7")
		if got, err := ask(client, header); got != client.LocalAddr().String() || err != nil {
			t.Errorf("by %q of a stranger the sender is %q, %v; want %s", header, got, err, client.LocalAddr())
		}
	}
	behind := func() net.Conn {
		c := dialFrom(t, s, "127.0.0.9")
		if _, err := io.WriteString(c, "PROXY TCP4 203.0.113.8 127.0.0.1 4711 80\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var three []net.Conn
	for range 3 {
		c := behind()
		if got, err := ask(c, ""); got != "203.0.113.8:4711" || err != nil {
			t.Errorf("by the PROXY protocol the sender is %q, %v, expected 203.0.113.8:4711", got, err)
		}
		three = append(three, c)
	}
	closed(t, "the first of three connections of one sender behind a proxy", three[0])
	for range 3 {
		if _, err := ask(dialFrom(t, s, "127.0.0.9"), ""); err != nil {
			t.Errorf("a proxy's own connection: %v, expected that it has no bound", err)
		}
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	limits := Limits{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "127.0.0.1": "invalid Prefix",
		"::1": "invalid Prefix", "10.1.2.3": "invalid Prefix",
	} {
		if got := limits.bounded(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s counts for %s, expected %s", addr, got, want)
		}
	}
}

// TestFailures: an address that goes on failing waits, and a good token does not.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStrangers(Limits{})
		r, err := http.NewRequestWithContext(
			context.WithValue(t.Context(), connKey{}, &conn{strangers: s}), http.MethodGet, "http://a", http.NoBody,
		)
		if err != nil {
			t.Fatal(err)
		}
		took := func(from string) time.Duration {
			r.RemoteAddr = from
			begin := time.Now()
			Fail(r)
			return time.Since(begin)
		}
		for i := range freeFailures {
			if d := took("192.0.2.1:1"); d != 0 {
				t.Errorf("failure %d waits %s in the bubble, expected none", i, d)
			}
		}
		if d := took("192.0.2.1:2"); d != failureDelay {
			t.Errorf("a further failure waits %s in the bubble, expected %s", d, failureDelay)
		}
		if d := took("192.0.2.2:1"); d != 0 {
			t.Errorf("another address waits %s in the bubble, expected none", d)
		}
		if d := took("127.0.0.1:1"); d != 0 {
			t.Errorf("the loopback waits %s in the bubble, expected none", d)
		}
		r.RemoteAddr = "192.0.2.1:1"
		begin := time.Now()
		Tried(r, "", &freeslot.Error{Code: freeslot.CodeUnavailable})
		if d := time.Since(begin); d != 0 {
			t.Errorf("a token that cannot be checked waits %s in the bubble; want none", d)
		}
		if Tried(r, "", &freeslot.Error{Code: freeslot.CodeUnauthenticated}); time.Since(begin) != failureDelay {
			t.Errorf("an invalid token waits %s in the bubble; want %s", time.Since(begin), failureDelay)
		}
		if s.failures.delayed != 0 {
			t.Errorf("%d answers still wait, expected none", s.failures.delayed)
		}
	})
}

type closable struct {
	net.Conn
	closed bool
}

func (c *closable) Close() error { c.closed = true; return nil }

// Strangers that stay busy for long give way to newcomers, whose requests are on their way.
func TestBusyStrangers(t *testing.T) {
	t.Parallel()
	const most, each = 256, 64
	s := newStrangers(Limits{Strangers: most, PerAddress: each})
	enter := func(addr string) (*conn, *closable) {
		inner := &closable{}
		c := &conn{Conn: inner, strangers: s}
		s.enter(c, s.limits.bounded(netip.MustParseAddr(addr)))
		return c, inner
	}
	for i := range most {
		c, _ := enter(fmt.Sprint("10.0.0.", i/each+1))
		s.count(c, http.StateActive)
	}
	lost := 0
	for range 60 {
		_, good := enter("10.9.9.9")
		enter("10.0.0.1") // the attacker connects once more
		if good.closed {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of 60 good newcomers are closed, expected none", lost)
	}
}

// TestIdleOfOwner: idle connections with one token leave room for others, and the newest of the
// token are served. WebSockets, which have bounds of their own, are not counted.
func TestIdleOfOwner(t *testing.T) {
	t.Parallel()
	s := serveStrangers(t, Limits{PerOwner: 8})
	var mine []net.Conn
	for i := range 40 {
		c := dialFrom(t, s, "127.0.0.1")
		if _, err := ask(c, "Authorization: Bearer goodmine\r\n"); err != nil {
			t.Fatalf("connection %d of the token: %v; want an answer", i, err)
		}
		mine = append(mine, c)
	}
	for _, c := range mine[:32] {
		closed(t, "an old idle connection", c)
	}
	for i, c := range mine[32:] {
		if _, err := ask(c, "Authorization: Bearer goodmine\r\n"); err != nil {
			t.Errorf("the newest connection %d: %v; want an answer", i, err)
		}
	}
	other := dialFrom(t, s, "127.0.0.1")
	for range 2 {
		if _, err := ask(other, good); err != nil {
			t.Errorf("another owner: %v; want an answer", err)
		}
	}
	// The connection counts for the owner that it has shown last.
	if _, err := ask(mine[39], "Authorization: Bearer goodother\r\n"); err != nil {
		t.Error(err)
	}
	s.strangers.mu.Lock()
	defer s.strangers.mu.Unlock()
	for owner, want := range map[string]int{"mine": 7, "other": 1} {
		if held := s.strangers.owners[owner]; held == nil || held.len() != want {
			t.Errorf("%+v are counted for %q, want %d", held, owner, want)
		}
	}
}
