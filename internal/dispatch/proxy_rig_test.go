package dispatch

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// proxy is a way to Redis that a test can cut in the middle of a call.
type proxy struct {
	listener net.Listener
	target   string
	tasks    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed

	// cut, if set, decides about a request.
	cut atomic.Pointer[func(request []byte) verdict]
	// cuts counts the connections that were cut.
	cuts atomic.Int64
}

type verdict int

const (
	pass verdict = iota
	// lost: the request does not reach Redis.
	lost
	// unanswered: Redis runs it, and its answer is lost.
	unanswered
)

func newProxy(t *testing.T, redis *redistest.Target) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: redis.Addrs()[0], conns: make(map[net.Conn]struct{})}
	p.tasks.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

// cutOn cuts the next times connections on which token is sent.
func (p *proxy) cutOn(token string, what verdict, times int64) {
	var left atomic.Int64
	left.Store(times)
	f := func(request []byte) verdict {
		if bytes.Contains(request, []byte(token)) && left.Add(-1) >= 0 {
			p.cuts.Add(1)
			return what
		}
		return pass
	}
	p.cut.Store(&f)
}

// onceSent calls f with the first request that has token, before it goes on.
func (p *proxy) onceSent(token string, f func(request []byte)) {
	var once sync.Once
	look := func(request []byte) verdict {
		if bytes.Contains(request, []byte(token)) {
			once.Do(func() { f(request) })
		}
		return pass
	}
	p.cut.Store(&look)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.conns == nil {
			p.mu.Unlock()
			_, _ = client.Close(), server.Close()
			return
		}
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		// deaf is true from a request on whose answer is to be lost.
		deaf := new(atomic.Bool)
		p.tasks.Go(func() { defer p.drop(client, server); p.requests(client, server, deaf) })
		p.tasks.Go(func() { defer p.drop(client, server); p.answers(client, server, deaf) })
	}
}

func (p *proxy) requests(client, server net.Conn, deaf *atomic.Bool) {
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		what := pass
		if cut := p.cut.Load(); cut != nil {
			what = (*cut)(buf[:n])
		}
		switch what {
		case lost:
			return
		case unanswered:
			deaf.Store(true)
		default:
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) answers(client, server net.Conn, deaf *atomic.Bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil || deaf.Load() {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// close cuts everything and waits.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.tasks.Wait()
}
