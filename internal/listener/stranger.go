package listener

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
)

// Limits bounds the strangers: connections that have not shown a valid token. In each field zero
// means no bound.
type Limits struct {
	// Strangers is how many there may be. A further one closes the oldest that is silent.
	Strangers int
	// PerAddress is how many one address may have; an IPv6 network of 64 bits counts as one. The
	// loopback and Proxies are not bounded.
	PerAddress int
	// Idle is how long a stranger may be silent after an answer, and a shorter http.Server.IdleTimeout
	// holds for all.
	Idle time.Duration
	// PerOwner is how many connections that do not serve a WebSocket the tokens of one owner may have.
	// A further one closes the oldest that is silent, or the oldest busy one if none is. Proxies are
	// not bounded.
	PerOwner int
	// Proxies are trusted to name the sender, by the PROXY protocol or by X-Forwarded-For.
	Proxies []netip.Prefix
	// BoundLoopback makes the loopback an address like others, for tests.
	BoundLoopback bool
}

func (l *Limits) trusts(addr netip.Addr) bool {
	for _, p := range l.Proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// bounded returns the network that an address counts for; the zero value for one without bounds.
func (l *Limits) bounded(addr netip.Addr) netip.Prefix {
	if !addr.IsValid() || addr.IsLoopback() && !l.BoundLoopback || l.trusts(addr) {
		return netip.Prefix{}
	}
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	network, _ := addr.Prefix(bits) // it fails only for other bits
	return network
}

// strangers counts the connections without a valid token, and closes some when there are too many.
type strangers struct {
	limits   Limits
	failures failures

	mu sync.Mutex // guards the fields that follow, and the fields of the connections
	// all holds every stranger, and of the strangers of one network: at most Strangers together.
	all line
	of  map[netip.Prefix]*line
	// owners holds the connections that have shown a valid token, at most PerOwner of one owner.
	owners map[string]*line
}

// line holds strangers in the order in which they came, or became silent or busy.
type line struct{ silent, busy list.List }

func (l *line) len() int { return l.silent.Len() + l.busy.Len() }

// oldest returns the oldest silent one, unless more are busy. A good caller is busy only until its
// token is seen, so callers that stay busy are hostile or lost.
func (l *line) oldest() *conn {
	e := l.silent.Front()
	if e == nil || l.busy.Len() > l.silent.Len() {
		e = l.busy.Front()
	}
	if e == nil {
		return nil
	}
	return e.Value.(*conn)
}

func (l *line) part(busy bool) *list.List {
	if busy {
		return &l.busy
	}
	return &l.silent
}

// conn is a connection that a server has accepted.
type conn struct {
	net.Conn
	strangers *strangers
	proxied   bool // it comes from a trusted proxy, which may name another address
	named     sync.Once
	idle      atomic.Bool // it has had an answer, and sends no further request
	known     atomic.Bool // it has shown a valid token

	// Guarded by strangers.mu. The elements are nil if it is not in a line.
	busy     bool
	network  netip.Prefix
	all, own *list.Element
	// owner is empty for a stranger, and for a connection that is not counted.
	owner string
	owned *list.Element
	// hijacked is true for a connection that serves a WebSocket.
	hijacked bool
}

func newStrangers(limits Limits) *strangers {
	return &strangers{
		limits: limits, failures: failures{recent: make(map[netip.Prefix]*failure)}, of: make(map[netip.Prefix]*line),
		owners: make(map[string]*line),
	}
}

// entrance accepts connections of inner, and counts them as strangers.
type entrance struct {
	net.Listener
	strangers *strangers
}

func (s *strangers) listen(inner net.Listener) net.Listener {
	if len(s.limits.Proxies) > 0 {
		inner = &proxyproto.Listener{
			Listener: inner, ReadHeaderTimeout: headerTimeout,
			ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
				if s.limits.trusts(addressOf(o.Upstream)) {
					return proxyproto.USE, nil
				}
				return proxyproto.SKIP, nil
			},
		}
	}
	return &entrance{inner, s}
}

// headerTimeout bounds how long a proxy may take to name the sender.
const headerTimeout = 5 * time.Second

// Accept implements net.Listener.
func (e *entrance) Accept() (net.Conn, error) {
	inner, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, strangers: e.strangers}
	var network netip.Prefix
	// The name of a proxy's sender may take a while to arrive, and must not delay other connections.
	if _, c.proxied = inner.(*proxyproto.Conn); !c.proxied {
		network = e.strangers.limits.bounded(addressOf(inner.RemoteAddr()))
	}
	e.strangers.enter(c, network)
	return c, nil
}

// enter counts a connection for a network, and closes one that there is no room for.
func (s *strangers) enter(c *conn, network netip.Prefix) {
	s.mu.Lock()
	s.remove(c)
	c.network = network
	var surplus *conn
	own := s.of[network]
	switch {
	case own != nil && s.limits.PerAddress > 0 && own.len() >= s.limits.PerAddress:
		surplus = own.oldest()
	case s.limits.Strangers > 0 && s.all.len() >= s.limits.Strangers:
		surplus = s.all.oldest()
	}
	if surplus != nil {
		s.remove(surplus)
	}
	s.add(c)
	s.mu.Unlock()
	if surplus != nil {
		_ = surplus.Conn.Close()
	}
}

// add puts c at the end of its lines. The caller holds mu.
func (s *strangers) add(c *conn) {
	c.all = s.all.part(c.busy).PushBack(c)
	if c.network.IsValid() {
		if s.of[c.network] == nil {
			s.of[c.network] = &line{}
		}
		c.own = s.of[c.network].part(c.busy).PushBack(c)
	}
}

// remove takes c out of its lines, if it is there. The caller holds mu.
func (s *strangers) remove(c *conn) {
	if c.all == nil {
		return
	}
	s.all.part(c.busy).Remove(c.all)
	if c.own != nil {
		own := s.of[c.network]
		own.part(c.busy).Remove(c.own)
		if own.len() == 0 {
			delete(s.of, c.network)
		}
	}
	c.all, c.own = nil, nil
}

// leave counts a connection no longer.
func (s *strangers) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
	s.disown(c)
}

// own counts a connection for an owner, and closes one that there is no room for.
func (s *strangers) own(c *conn, owner string) {
	s.mu.Lock()
	s.remove(c)
	if c.owner == owner || c.hijacked || s.limits.PerOwner == 0 {
		s.mu.Unlock()
		return
	}
	s.disown(c)
	var surplus *conn
	if held := s.owners[owner]; held != nil && held.len() >= s.limits.PerOwner {
		e := held.silent.Front()
		if e == nil {
			e = held.busy.Front()
		}
		surplus = e.Value.(*conn)
		s.disown(surplus)
	}
	if s.owners[owner] == nil {
		s.owners[owner] = &line{}
	}
	c.owner = owner
	c.owned = s.owners[owner].part(c.busy).PushBack(c)
	s.mu.Unlock()
	if surplus != nil {
		_ = surplus.Conn.Close()
	}
}

// disown takes c out of its owner's line, if it is there. The caller holds mu.
func (s *strangers) disown(c *conn) {
	if c.owned == nil {
		return
	}
	own := s.owners[c.owner]
	own.part(c.busy).Remove(c.owned)
	if own.len() == 0 {
		delete(s.owners, c.owner)
	}
	c.owner, c.owned = "", nil
}

// count is http.Server.ConnState.
func (s *strangers) count(inner net.Conn, state http.ConnState) {
	c := connOf(inner)
	if c == nil || state != http.StateActive && state != http.StateIdle && state != http.StateHijacked {
		return
	}
	c.idle.Store(state == http.StateIdle)
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := state != http.StateIdle
	switch {
	case state == http.StateHijacked: // a WebSocket's handler has bounds of its own
		c.hijacked = true
		s.disown(c)
	case c.all != nil:
		s.remove(c)
		c.busy = busy
		s.add(c)
	case c.owned != nil:
		own := s.owners[c.owner]
		own.part(c.busy).Remove(c.owned)
		c.busy = busy
		c.owned = own.part(busy).PushBack(c)
	}
}

func connOf(c net.Conn) *conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// RemoteAddr returns the sender's address. It waits until a proxy has named the sender.
func (c *conn) RemoteAddr() net.Addr {
	addr := c.Conn.RemoteAddr()
	if c.proxied {
		c.named.Do(func() {
			if network := c.strangers.limits.bounded(addressOf(addr)); network.IsValid() {
				c.strangers.enter(c, network)
			}
		})
	}
	return addr
}

// SetReadDeadline gives an idle stranger less time.
func (c *conn) SetReadDeadline(t time.Time) error {
	if most := c.strangers.limits.Idle; most > 0 && c.idle.Load() && !c.known.Load() && !c.proxied && !t.IsZero() {
		if end := time.Now().Add(most); end.Before(t) {
			t = end
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.strangers.leave(c)
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	inner := c.Conn
	if proxied, ok := inner.(*proxyproto.Conn); ok {
		inner = proxied.Raw()
	}
	if raw, ok := inner.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, syscall.EINVAL
}

type connKey struct{}

// Prove records that the connection of a request's context has shown a valid token: it is no
// stranger any more, and counts for the token's owner, unless that is empty.
func Prove(ctx context.Context, owner string) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return
	}
	c.known.Store(true)
	if !c.proxied && !c.strangers.limits.trusts(addressOf(c.Conn.RemoteAddr())) {
		c.strangers.own(c, owner)
		return
	}
	c.strangers.leave(c) // its requests have several owners
}

// ByHTTPS reports whether the sender of a request spoke HTTPS: to this server, or to a trusted
// proxy that says so in X-Forwarded-Proto.
func ByHTTPS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || !c.strangers.limits.trusts(addressOf(c.Conn.RemoteAddr())) {
		return false
	}
	said := r.Header.Values("X-Forwarded-Proto")
	return len(said) == 1 && strings.EqualFold(said[0], "https")
}

// addressOf returns the zero value for what is no TCP address.
func addressOf(addr net.Addr) netip.Addr {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
