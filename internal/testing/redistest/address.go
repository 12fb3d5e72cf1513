package redistest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Address is an address in front of servers, like a Kubernetes service or a load balancer. New
// connections lead to one of the servers, and open ones stay where they are.
type Address struct {
	*Target
	to    atomic.Pointer[Target]
	tasks sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed; guarded by mu
}

// NewAddress makes an address that leads to a server until the test ends.
func NewAddress(tb testing.TB, to *Target) *Address {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	a := &Address{Target: own("address", false, l.Addr().String()), conns: make(map[net.Conn]struct{})}
	a.Lead(to)
	a.tasks.Go(func() { a.accept(l) })
	tb.Cleanup(func() {
		_ = l.Close()
		a.mu.Lock()
		for c := range a.conns {
			_ = c.Close()
		}
		a.conns = nil
		a.mu.Unlock()
		a.tasks.Wait()
	})
	return a
}

// Lead makes new connections lead to another server.
func (a *Address) Lead(to *Target) { a.to.Store(to) }

func (a *Address) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", a.to.Load().Addrs()[0])
		if err != nil {
			_ = client.Close()
			continue
		}
		if !a.note(client, server) {
			return
		}
		a.tasks.Go(func() { a.pass(client, server) })
		a.tasks.Go(func() { a.pass(server, client) })
	}
}

func (a *Address) note(conns ...net.Conn) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range conns {
		if a.conns == nil {
			_ = c.Close()
		} else {
			a.conns[c] = struct{}{}
		}
	}
	return a.conns != nil
}

// pass copies until one side ends, and then ends both.
func (a *Address) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range []net.Conn{from, to} {
		_ = c.Close()
		delete(a.conns, c)
	}
}

// Swap makes master and replica exchange their roles, once the replica has everything that the
// master wrote until then. Open connections to both stay open.
func Swap(tb testing.TB, master, replica *Server) {
	tb.Helper()
	old, fresh := master.Client(tb), replica.Client(tb)
	host, port, err := net.SplitHostPort(replica.Addrs()[0])
	if err != nil {
		tb.Fatal(err)
	}
	// A new replica counts as online before it gets the stream of writes.
	written := old.DoMulti(tb.Context(), old.B().Publish().Channel("swap").Message("").Build(),
		old.B().Wait().Numreplicas(1).Timeout(startLimit.Milliseconds()).Build())
	if n, err := written[1].AsInt64(); n != 1 {
		tb.Fatalf("the replica of %s has not caught up: %v", master.Addrs()[0], err)
	}
	for _, step := range []error{
		fresh.Do(tb.Context(), fresh.B().Arbitrary("REPLICAOF", "NO", "ONE").Build()).Error(),
		old.Do(tb.Context(), old.B().Arbitrary("REPLICAOF", host, port).Build()).Error(),
	} {
		if step != nil {
			tb.Fatalf("swap the roles of %s and %s: %v", master.Addrs()[0], replica.Addrs()[0], step)
		}
	}
}
