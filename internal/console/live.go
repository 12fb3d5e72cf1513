package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/listener"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// Protocol is the subprotocol of live updates.
const Protocol = "freeslot.console.v1"

const (
	// maxWanted is the largest number of topics of a page, and maxWantBytes the largest message by
	// which it names them.
	maxWanted    = 16
	maxWantBytes = 4 << 10
	// pingInterval is how often a page is pinged. readTimeout is how long it may take to answer, or
	// to read a frame.
	pingInterval = 5 * time.Second
	readTimeout  = 10 * time.Second
	closeTimeout = 2 * time.Second
	// snapshotTimeout is how long a snapshot waits for the topics that are not known yet.
	snapshotTimeout = 5 * time.Second
	// unsentBytes is how much the kernel accepts before it can send it.
	unsentBytes = 64 << 10
	retryAfter  = 5 * time.Second
)

// The labels of connections that ended.
const (
	closedByPage  = "page_closed"
	closedLost    = "connection_lost"
	closedSlow    = "slow_page"
	closedSilent  = "silent_page"
	closedRights  = "rights"
	closedBad     = "bad_message"
	closedStopped = "stopped"
)

func (c *Console) socketConfig() socket.Config {
	return socket.Config{
		Protocol: Protocol, MaxFrameBytes: maxWantBytes,
		// Only the greeting is queued: frames of topics replace one another.
		QueueMessages: 4, QueueBytes: 4 << 10, UnsentBytes: unsentBytes,
		PingTimeout: readTimeout, WriteTimeout: readTimeout, CloseTimeout: closeTimeout,
		Slow:   socket.Order{Code: wire.CloseSlowClient, Text: "the page does not read fast enough", Label: closedSlow},
		Closed: closedByPage, Lost: closedLost,
		FramesIn: c.metrics.framesIn, FramesOut: c.metrics.framesOut,
		BytesIn: c.metrics.bytesIn, BytesOut: c.metrics.bytesOut,
	}
}

// places counts the viewers of each tenant.
type places struct {
	mu    sync.Mutex // guards taken
	taken map[string]int
}

// take reports whether the tenant has fewer than most.
func (p *places) take(tenant string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[tenant] >= most {
		return false
	}
	p.taken[tenant]++
	return true
}

func (p *places) giveBack(tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[tenant]--; p.taken[tenant] == 0 {
		delete(p.taken, tenant)
	}
}

// enter takes a place for a viewer.
func (c *Console) enter(who *identity.Principal) *freeslot.Error {
	if !c.places.take(who.Tenant, c.cfg.MaxTenantViewers) {
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: retryAfter,
			Message: fmt.Sprintf("tenant %s has %d pages here, which is its share", who.Tenant, c.cfg.MaxTenantViewers),
		}
	}
	viewers, ok := c.viewers.Enter()
	if !ok {
		c.places.giveBack(who.Tenant)
		return &freeslot.Error{
			Code: freeslot.CodeUnavailable, RetryAfter: time.Second, Message: "the replica is stopping",
		}
	}
	c.metrics.viewers.Inc()
	if viewers > c.cfg.MaxViewers {
		c.leave(who)
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: retryAfter,
			Message: fmt.Sprintf("the replica has %d pages, which is its limit (console.max_viewers)", c.cfg.MaxViewers),
		}
	}
	return nil
}

func (c *Console) leave(who *identity.Principal) {
	c.metrics.viewers.Dec()
	c.places.giveBack(who.Tenant)
	c.viewers.Leave()
}

// caller returns who asks, and notes for the bounds of connections whether the caller is known.
func (c *Console) caller(r *http.Request) (identity.Principal, *freeslot.Error) {
	who, err := c.auth.Authenticate(r)
	listener.Tried(r, who.Tenant, err)
	if err != nil {
		return who, wire.AsError(err)
	}
	return who, nil
}

// ownPage refuses WebSockets that another page has opened. A browser names the page of every one.
func ownPage(r *http.Request) *freeslot.Error {
	origin := r.Header.Get("Origin")
	if u, err := url.Parse(origin); origin == "" || err == nil && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return &freeslot.Error{
		Code: freeslot.CodePermissionDenied, Field: "Origin", Message: fmt.Sprintf("pages of %.80q may not connect", origin),
	}
}

// live serves the WebSocket of a page until it ends.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	who, err := identity.Principal{}, ownPage(r)
	if err == nil && (!socket.IsUpgrade(r) || !socket.Offers(r, Protocol)) {
		err = &freeslot.Error{
			Code: freeslot.CodeInvalidArgument, Field: "Upgrade",
			Message: "this is a WebSocket endpoint, expected an upgrade to websocket with the subprotocol " + Protocol,
		}
	}
	if err == nil {
		who, err = c.caller(r)
	}
	if err == nil {
		err = c.enter(&who)
	}
	if err != nil {
		c.metrics.refused.WithLabelValues(string(err.Code)).Inc()
		socket.Refuse(w, wire.HandshakeStatus(err.Code), err)
		return
	}
	defer c.leave(&who)
	conn, acceptErr := socket.Accept(w, r, &c.socket)
	if acceptErr != nil {
		c.log.Debug("console.handshake_failed", zap.Error(acceptErr), zap.String(logging.FieldAddress, r.RemoteAddr))
		return
	}
	v := &viewer{
		console: c, who: who, ends: who.Expires, conn: conn, wanted: make(map[string]topicKey), quit: make(chan struct{}),
		done: make(chan struct{}),
	}
	if s := recognized(r); s != nil {
		v.session, v.ends = s.ID, time.UnixMilli(s.IdleMS)
	}
	c.viewers.Add(v)
	v.run()
}

// viewer is the connection of a page.
type viewer struct {
	console *Console
	who     identity.Principal
	// session names the session of the cookie; empty without one. ends is when that, or the token,
	// ends; zero: never. A page that is used meanwhile comes back with its renewed cookie.
	session    string
	ends       time.Time
	conn       *socket.Conn
	wanted     map[string]topicKey // for the reader alone
	quit, done chan struct{}
}

// End implements socket.Session.
func (v *viewer) End(by socket.Order) {
	if v.conn.End(by) {
		v.console.metrics.closed.WithLabelValues(by.Label).Inc()
	}
}

// Cut implements socket.Session.
func (v *viewer) Cut() { v.conn.Cut() }

// Done implements socket.Session.
func (v *viewer) Done() <-chan struct{} { return v.done }

func (v *viewer) put(topic string, frame []byte) socket.Outcome {
	outcome := v.conn.PutLatest(topic, frame)
	v.console.metrics.pending[outcome].Inc()
	return outcome
}

func (v *viewer) waits(topic string) bool { return v.conn.Waits(topic) }

// run serves the page until its connection has ended.
func (v *viewer) run() {
	c := v.console
	defer close(v.done)
	defer c.viewers.Remove(v)
	var running sync.WaitGroup
	running.Go(func() { v.conn.Write(0, func(socket.Sent) {}) })
	running.Go(v.keep)
	v.conn.Put(func(dst []byte) []byte { return append(dst, c.hello()...) })
	v.read()
	for _, key := range v.wanted {
		c.hub.leave(v, key)
	}
	close(v.quit)
	running.Wait()
	v.conn.Close()
}

// read takes the page's messages until none can come any more.
func (v *viewer) read() {
	for {
		var bad *freeslot.Error
		err := v.conn.Read(func(text []byte) { bad = v.take(text) })
		switch {
		case err == nil && bad == nil:
			continue
		case err == nil:
			v.End(socket.Order{Code: websocket.StatusPolicyViolation, Text: bad.Message, Label: closedBad, Flush: true})
		case err == socket.ErrBinary, err == socket.ErrTooBig: //nolint:errorlint // Read documents these errors
			v.End(socket.Order{Code: websocket.StatusPolicyViolation, Text: err.Error(), Label: closedBad})
		}
		if err != nil {
			v.End(v.conn.Lost(err))
			return
		}
	}
}

// take makes the page's topics those that a message names.
func (v *viewer) take(text []byte) *freeslot.Error {
	names, err := parseWant(text)
	if err != nil {
		return err
	}
	h, now := v.console.hub, make(map[string]bool, len(names))
	for _, name := range names {
		now[name] = true
	}
	for name, key := range v.wanted {
		if !now[name] {
			h.leave(v, key)
			v.conn.DropLatest(name)
			delete(v.wanted, name)
		}
	}
	for name := range now {
		if _, has := v.wanted[name]; has {
			continue
		}
		key, k, err := parseTopic(name, &v.who)
		if err != nil {
			v.put(name, h.refusal(name, err))
			continue
		}
		v.wanted[name] = key
		h.watch(v, key, k, &v.who)
	}
	return nil
}

// parseWant returns the topics that a page's message names.
func parseWant(text []byte) ([]string, *freeslot.Error) {
	var message struct {
		Want *[]string `json:"want"`
	}
	if err := json.Unmarshal(text, &message); err != nil || message.Want == nil {
		return nil, freeslot.Invalid("want", `is missing, expected a message such as {"want":["overview"]}`)
	}
	if len(*message.Want) > maxWanted {
		return nil, freeslot.Invalid("want", "names %d topics, expected at most %d", len(*message.Want), maxWanted)
	}
	return *message.Want, nil
}

// keep ends the connection of a page that does not answer, or whose user has other rights now.
func (v *viewer) keep() {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	var expired <-chan time.Time
	if !v.ends.IsZero() {
		timer := time.NewTimer(time.Until(v.ends))
		defer timer.Stop()
		expired = timer.C
	}
	for {
		changed := v.console.auth.Changed()
		if !v.console.auth.Holds(&v.who) {
			v.endRights()
			return
		}
		select {
		case <-v.quit:
			return
		case <-changed:
		case <-expired:
			v.endRights()
			return
		case <-ticker.C:
			if _, alive := v.conn.Alive(context.Background()); !alive {
				v.End(socket.Order{Code: wire.CloseSilentClient, Text: "the page does not answer", Label: closedSilent})
				return
			}
		}
	}
}

func (v *viewer) endRights() {
	v.End(socket.Order{
		Code: wire.CloseRights, Text: "the token was removed, has expired, or has other rights now", Label: closedRights,
	})
}

// hello is the first message to a page.
func (c *Console) hello() []byte {
	type greeting struct {
		Replica string `json:"replica"`
		Build   string `json:"build"`
		NowMS   int64  `json:"now_ms"`
	}
	text, err := json.Marshal(map[string]greeting{"hello": {c.cfg.Replica, c.cfg.Build, c.now().UnixMilli()}})
	if err != nil {
		panic(err) // texts and a number
	}
	return text
}
