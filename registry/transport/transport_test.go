package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower hands out the lists that a test sets.
type follower struct {
	mu       sync.Mutex
	list     *registry.List
	call     func(*registry.List)
	followed int
}

func (f *follower) Follow(_ string, call func(*registry.List)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followed++
	if f.call = call; f.list != nil {
		call(f.list)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followed--
	}
}

func (f *follower) set(list *registry.List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	if f.call != nil {
		f.call(list)
	}
}

func live(instances ...*registry.Instance) *registry.List {
	return &registry.List{Service: "asr", State: registry.StateLive, Instances: instances}
}

// serve starts a server that answers with its id, the path, the Host header and the body.
func serve(t *testing.T, id string) *registry.Instance {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", id, r.URL.Path, r.Host, body)
	}))
	t.Cleanup(server.Close)
	return at(t, id, server.Listener.Addr().String())
}

func at(t *testing.T, id, addr string) *registry.Instance {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return &registry.Instance{Registration: registry.Registration{Service: "asr", ID: id, Host: host, Port: number}, Weight: 1}
}

// gone is an instance that refuses connections.
func gone(t *testing.T, id string) *registry.Instance {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return at(t, id, addr)
}

func newClient(t *testing.T, cfg Config, lists ...*registry.List) (*http.Client, *follower) {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	f, base := &follower{}, &http.Transport{}
	if len(lists) > 0 {
		f.list = lists[0]
	}
	cfg.Base = base
	transport := New(cfg, f)
	t.Cleanup(func() { transport.Close(); base.CloseIdleConnections() })
	return &http.Client{Transport: transport}, f
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestMeasures: the response times of answered calls, and failures, are figures.
func TestMeasures(t *testing.T) {
	t.Parallel()
	calls := pick.NewCalls()
	client, f := newClient(t, Config{Calls: calls}, live(serve(t, "a")))
	get(t, client, "http://asr/")
	get(t, client, "http://asr/")
	f.set(live(gone(t, "b")))
	if resp, err := client.Get("http://asr/"); err == nil {
		t.Errorf("%s, expected an error", read(t, resp))
	}
	got, _ := calls.Collect(t.Context())
	if took, ok := got["asr_ms"].(float64); !ok || took <= 0 || got["asr_answered"] != int64(2) || got["asr_failed"] != int64(1) {
		t.Errorf("%v, expected two answers with their mean time, and a failure", got)
	}
}

func TestCallsByName(t *testing.T) {
	t.Parallel()
	a := serve(t, "a")
	client, _ := newClient(t, Config{}, live(a))
	if got, want := get(t, client, "http://asr/recognize"), fmt.Sprintf("a /recognize %s:%d ", a.Host, a.Port); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://asr/", http.NoBody)
	req.Host = "asr.example.org"
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, resp); got != "a / asr.example.org " {
		t.Errorf("got %q, want the Host of the request", got)
	}
	if req.URL.Host != "asr" {
		t.Error("the request was changed")
	}
}

// The refused connection is repeated with the body, and the instance is left out after that.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, policy := range []pick.Policy{pick.Random, pick.RoundRobin, pick.Weighted, pick.LeastLoaded, pick.ConsistentHash} {
		client, _ := newClient(t, Config{Policy: policy}, live(serve(t, "a"), gone(t, "b")))
		for i := range 40 {
			resp, err := client.Post(fmt.Sprintf("http://asr/%d", i), "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatalf("%s: %v; want no error", policy, err)
			}
			if got := read(t, resp); !strings.HasPrefix(got, "a ") || !strings.HasSuffix(got, "hello") {
				t.Fatalf("%s: got %q", policy, got)
			}
		}
	}
}

func TestDoesNotRepeat(t *testing.T) {
	t.Parallel()
	client, f := newClient(t, Config{Policy: "round_robin"}, live(gone(t, "a"), gone(t, "b")))
	_, err := client.Get("http://asr/")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want ECONNREFUSED after two tries", err)
	}
	// A body that cannot be had again: one of the tries fails.
	f.set(live(serve(t, "a"), gone(t, "b")))
	failed := 0
	for range 2 {
		resp, err := client.Post("http://asr/", "text/plain", io.MultiReader(strings.NewReader("once")))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			failed++
		case err != nil:
			t.Fatal(err)
		default:
			read(t, resp)
		}
	}
	if failed != 1 {
		t.Errorf("%d of 2 requests failed, want 1", failed)
	}
}

// A call is under way until its body is closed.
func TestLoadCountsUntilBodyEnds(t *testing.T) {
	t.Parallel()
	client, _ := newClient(t, Config{Policy: "consistent_hash", Key: func(*http.Request) string { return "same" }}, live(serve(t, "a"), serve(t, "b")))
	first, err := client.Get("http://asr/")
	if err != nil {
		t.Fatal(err)
	}
	// Of two or three calls an instance may have two: 1.25 times its half, rounded up.
	second, err := client.Get("http://asr/")
	if err != nil {
		t.Fatal(err)
	}
	third := get(t, client, "http://asr/")
	home := read(t, first)[:1]
	if got := read(t, second)[:1]; got != home {
		t.Errorf("the second call went to %s, want %s", got, home)
	}
	if third[:1] == home {
		t.Error("the third call went to the full instance")
	}
	if got := get(t, client, "http://asr/"); got[:1] != home {
		t.Errorf("after all calls ended the key went to %s, want %s", got[:1], home)
	}
}

func TestWaitsForFirstList(t *testing.T) {
	t.Parallel()
	client, f := newClient(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://asr/", http.NoBody)
	if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	f.set(&registry.List{Service: "asr", State: registry.StateEmpty, Why: registry.WhyNeverRegistered})
	var empty *registry.EmptyError
	if _, err := client.Get("http://asr/"); !errors.As(err, &empty) || empty.Why != registry.WhyNeverRegistered {
		t.Errorf("got %v, want never registered", err)
	}
	f.set(live(serve(t, "a")))
	get(t, client, "http://asr/")
	if f.followed != 1 {
		t.Errorf("the service is followed %d times, want 1", f.followed)
	}
}

// closer is a body that says when it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestClosed(t *testing.T) {
	t.Parallel()
	client, f := newClient(t, Config{}, live(serve(t, "a")))
	get(t, client, "http://asr/")
	transport := client.Transport.(*Transport)
	transport.Close()
	transport.Close()
	body := &closer{Reader: strings.NewReader("x")}
	if _, err := client.Post("http://asr/", "", body); !errors.Is(err, registry.ErrClosed) || !body.closed {
		t.Errorf("got %v with body closed %v, want ErrClosed and true", err, body.closed)
	}
	if f.followed != 0 {
		t.Error("the service is still followed")
	}
}

func TestBadName(t *testing.T) {
	t.Parallel()
	client, f := newClient(t, Config{})
	if _, err := client.Get("http://[::1]/"); err == nil || !strings.Contains(err.Error(), "url.host") {
		t.Errorf("got %v, want an error about url.host", err)
	}
	if f.followed != 0 {
		t.Error("a bad name is followed")
	}
}
