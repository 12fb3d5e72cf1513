package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, s *Server) (string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodGet, "http://"+s.Addr(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestServer(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	s := New("listen on", "127.0.0.1:0", &http.Server{Handler: handler}, nil, Limits{})
	ctx := waittest.Context(t)
	if addr := s.Addr(); addr != "" {
		t.Errorf("before the start it listens on %q, expected nothing", addr)
	}
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, s); got != "hello" || err != nil {
		t.Errorf("answer %q, %v, expected hello", got, err)
	}
	if err := s.Start(ctx); err == nil {
		t.Error("a second start succeeds")
	}
	for range 2 {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	waittest.Receive(t, "the end", s.Done())
	if err := s.Err(); err != nil {
		t.Errorf("error %v after Stop, expected none", err)
	}
	if _, err := get(t, s); err == nil {
		t.Error("it answers after Stop")
	}
}

// TestStopBeforeStart: it comes to an end, also the second time, and the server does not start
// later.
func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	s := New("listen on", "127.0.0.1:0", &http.Server{}, nil, Limits{})
	ctx := waittest.Context(t)
	for range 2 {
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := s.Start(ctx); err == nil {
		t.Error("it starts after Stop")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	ctx := waittest.Context(t)
	taken, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	err = New("gateway.listen", address, &http.Server{}, nil, Limits{}).Start(ctx)
	if want := "gateway.listen " + address + ": bind: address already in use"; err == nil || err.Error() != want {
		t.Errorf("error %v, expected %s", err, want)
	}
}

// TestServeFails: a listener that breaks ends the server with a reason.
func TestServeFails(t *testing.T) {
	t.Parallel()
	s := New("listen on", "127.0.0.1:0", &http.Server{}, nil, Limits{})
	if err := s.Start(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	_ = s.listener.Close()
	waittest.Receive(t, "the end", s.Done())
	if s.Err() == nil {
		t.Error("no error, expected the reason")
	}
}

// TestStopCutsRequests: a request that does not end holds up Stop until its context ends.
func TestStopCutsRequests(t *testing.T) {
	t.Parallel()
	begun, answered := make(chan struct{}), make(chan error, 1)
	s := New("listen on", "127.0.0.1:0", &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})}, nil, Limits{})
	if err := s.Start(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := get(t, s)
		answered <- err
	}()
	waittest.Receive(t, "the request", begun)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, expected that the context has ended", err)
	}
	if err := waittest.Receive(t, "the end of the request", answered); err == nil {
		t.Error("the request has an answer, expected that it is cut off")
	}
}
