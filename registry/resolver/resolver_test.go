package resolver

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower hands out the lists that a test sets.
type follower struct {
	mu        sync.Mutex
	list      *registry.List
	followers map[int]func(*registry.List)
	next      int
}

func (f *follower) Follow(_ string, call func(*registry.List)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == nil {
		f.followers = map[int]func(*registry.List){}
	}
	id := f.next
	f.next++
	f.followers[id] = call
	if f.list != nil {
		call(f.list)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.followers, id)
	}
}

func (f *follower) set(list *registry.List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	for _, call := range f.followers {
		call(list)
	}
}

// serve starts a server and returns its instance.
func serve(t *testing.T, id string) *registry.Instance {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return &registry.Instance{Registration: registry.Registration{
		ID: id, Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, Weight: new(3.0), Metadata: map[string]string{"zone": "west"},
	}}
}

func live(instances ...*registry.Instance) *registry.List {
	return &registry.List{Service: "asr", State: registry.StateLive, Instances: instances}
}

func dial(t *testing.T, f Follower, policy string) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(Scheme+":///asr", grpc.WithResolvers(New(f)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"`+policy+`":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// call returns the port that answered.
func call(t *testing.T, client healthpb.HealthClient) (port int, err error) {
	ctx := waittest.Context(t)
	var p peer.Peer
	if _, err = client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
		return 0, err
	}
	return p.Addr.(*net.TCPAddr).Port, nil
}

// reaches calls until exactly these instances answer.
func reaches(t *testing.T, client healthpb.HealthClient, want ...*registry.Instance) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d instances to answer", len(want)), func() bool {
		got, ok := map[int]bool{}, true
		for range 20 {
			port, err := call(t, client)
			if err != nil {
				t.Fatal(err)
			}
			got[port] = true
		}
		for _, i := range want {
			ok = ok && got[i.Port]
		}
		return ok && len(got) == len(want)
	})
}

func TestFollowsLists(t *testing.T) {
	a, b, f := serve(t, "a"), serve(t, "b"), &follower{}
	client := dial(t, f, "round_robin")
	go f.set(live(a)) // the first call waits for the first list
	reaches(t, client, a)
	f.set(live(a, b))
	reaches(t, client, a, b)
	draining := *a
	draining.Draining = true
	f.set(live(&draining, b))
	reaches(t, client, b)
}

// Calls to a service without instances fail with the reason, and go on when there is one again.
func TestEmptyListHasReason(t *testing.T) {
	for _, policy := range []string{"pick_first", "round_robin"} {
		a, f := serve(t, "a"), &follower{}
		client := dial(t, f, policy)
		empty := &registry.List{Service: "asr", State: registry.StateEmpty, Why: registry.WhyExpired}
		f.set(empty)
		fails(t, client, "empty: expired")
		f.set(live(a))
		works(t, client)
		f.set(empty)
		if policy == "pick_first" {
			fails(t, client, "empty: expired")
		} else {
			fails(t, client, "")
		}
		f.set(live(a))
		works(t, client)
	}
}

// works calls until it succeeds: grpc takes over its resolver's word soon, not at once.
func works(t *testing.T, client healthpb.HealthClient) {
	t.Helper()
	waittest.Succeeds(t, "an answer", func() error { _, err := call(t, client); return err })
}

// fails calls until the error has this reason.
func fails(t *testing.T, client healthpb.HealthClient, reason string) {
	t.Helper()
	var err error
	waittest.Until(t, fmt.Sprintf("an error with the reason %q", reason), func() bool {
		_, err = call(t, client)
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), reason)
	}, func() any { return err })
}

func TestBadTarget(t *testing.T) {
	t.Parallel()
	_, err := New(&follower{}).Build(resolver.Target{URL: url.URL{Path: "/no{name}"}}, nil, resolver.BuildOptions{})
	if err == nil || !strings.Contains(err.Error(), "target.service") {
		t.Errorf("got %v, want an error about target.service", err)
	}
}

// recorder keeps what it gets.
type recorder struct {
	resolver.ClientConn
	states []resolver.State
	errs   []error
}

func (r *recorder) UpdateState(s resolver.State) error { r.states = append(r.states, s); return nil }
func (r *recorder) ReportError(err error)              { r.errs = append(r.errs, err) }

func TestAttributes(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	plain := &registry.Instance{Registration: registry.Registration{Host: "::1", Port: 80}}
	zoned := &registry.Instance{Registration: registry.Registration{Host: "h", Port: 80, Metadata: map[string]string{"zone": "west"}}, Weight: 2.5}
	(&pusher{cc: r}).push(live(plain, zoned))
	if len(r.states) != 1 || len(r.errs) != 0 || len(r.states[0].Endpoints) != 2 {
		t.Fatalf("got %v and %v", r.states, r.errs)
	}
	for i, want := range []struct {
		addr, zone string
		weight     float64
	}{{"[::1]:80", "", 1}, {"h:80", "west", 2.5}} {
		e := r.states[0].Endpoints[i]
		if e.Addresses[0].Addr != want.addr || Weight(e.Attributes) != want.weight || Zone(e.Attributes) != want.zone {
			t.Errorf("got %v of weight %v in %q, want %v", e, Weight(e.Attributes), Zone(e.Attributes), want)
		}
	}
}

// TestMeasure: the response times of answered calls, and failures, are figures.
func TestMeasure(t *testing.T) {
	t.Parallel()
	calls := pick.NewCalls()
	a := serve(t, "a")
	f := &follower{}
	conn, err := grpc.NewClient(Scheme+":///asr", grpc.WithResolvers(New(f)), grpc.WithUnaryInterceptor(Measure(calls)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f.set(live(a))
	client := healthpb.NewHealthClient(conn)
	for range 2 {
		if _, err := call(t, client); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "unknown"}); err == nil {
		t.Error("the check of an unknown service was answered")
	}
	got, _ := calls.Collect(t.Context())
	if took, ok := got["asr_ms"].(float64); !ok || took <= 0 || got["asr_answered"] != int64(2) || got["asr_failed"] != int64(1) {
		t.Errorf("%v, expected two answers with their mean time, and a failure", got)
	}
}
