package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/wire"
)

// link is one connection to one replica.
type link struct {
	client  *Client
	conn    *websocket.Conn
	url     int // its place in client.urls
	host    string
	welcome wire.Welcome
	since   time.Time
	// early are messages that came with the welcome.
	early []wire.Message

	// out hands frames to the writer. It has no buffer: a frame that nobody took
	// was not sent, which is what makes it safe to send it elsewhere.
	out chan []byte
	// goaway is closed when the replica says so, ended when nothing more comes.
	goaway, ended chan struct{}
	// orphans tells that there may be jobs to take over; it has room for one.
	orphans chan struct{}

	// received counts bytes, for the pings.
	received atomic.Int64

	// What follows is guarded by client.mu.
	pending map[string]*call
	// leaving: the replica said goaway. closing: everything has come. dead: no
	// more does.
	leaving, closing, dead bool
}

// connect makes a connection to one replica and takes its welcome. Its
// goroutines run once start is called.
func (c *Client) connect(ctx context.Context, index int) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	u := c.urls[index]
	header := http.Header{"User-Agent": {c.opts.userAgent()}}
	if c.opts.Token != "" {
		header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	conn, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: c.opts.HTTPClient, HTTPHeader: header, Subprotocols: []string{wire.Protocol},
	})
	if err != nil {
		return nil, dialError(u.Host, resp, err)
	}
	conn.SetReadLimit(int64(c.opts.MaxMessageBytes))
	first, err := readWelcome(ctx, conn)
	if err != nil {
		_ = conn.CloseNow()
		return nil, dialError(u.Host, nil, err)
	}
	return &link{
		client: c, conn: conn, url: index, host: u.Host, since: time.Now(),
		welcome: first[0].Welcome, early: first[1:],
		out: make(chan []byte), goaway: make(chan struct{}), ended: make(chan struct{}),
		orphans: make(chan struct{}, 1), pending: map[string]*call{},
	}, nil
}

// dialError makes the error of a connection that did not come about. The URL is
// left out: it can hold a token.
func dialError(host string, resp *http.Response, err error) error {
	if resp != nil && resp.Body != nil {
		var body struct {
			Code    freeslot.Code `json:"code"`
			Message string        `json:"message"`
			MS      int64         `json:"retry_after_ms"`
		}
		if json.NewDecoder(resp.Body).Decode(&body) == nil && body.Code != "" {
			return &freeslot.Error{
				Code: body.Code, Message: "connect to " + host + ": " + body.Message,
				RetryAfter: time.Duration(body.MS) * time.Millisecond,
			}
		}
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "connect to " + host + ": HTTP status " + resp.Status}
	}
	cause := err
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	return fmt.Errorf("%w: %w", &freeslot.Error{Code: freeslot.CodeUnavailable, Message: "connect to " + host}, cause)
}

// readWelcome returns the messages of the first frame, of which the first is the
// welcome.
func readWelcome(ctx context.Context, conn *websocket.Conn) ([]wire.Message, error) {
	_, frame, err := conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	var messages []wire.Message
	if err := wire.DecodeMessages(frame, func(m *wire.Message) { messages = append(messages, *m) }); err != nil {
		return nil, err
	}
	if len(messages) == 0 || messages[0].Type != wire.TypeWelcome || messages[0].Welcome.Protocol != wire.Protocol {
		return nil, errors.New("this is no replica that speaks " + wire.Protocol)
	}
	return messages, nil
}

// start runs the link until it ends.
func (l *link) start() {
	c := l.client
	c.loops.Go(l.writeLoop)
	c.loops.Go(l.pingLoop)
	c.loops.Go(l.adoptLoop)
	c.loops.Go(func() {
		reason := l.readLoop()
		_ = l.conn.CloseNow()
		c.drop(l, reason)
	})
}

// readLoop takes messages until the connection ends. It reads without a deadline:
// the pings find a replica that is gone.
func (l *link) readLoop() error {
	for i := range l.early {
		l.take(&l.early[i])
	}
	var frame []byte
	for {
		_, r, err := l.conn.Reader(context.Background())
		if err != nil {
			return err
		}
		if frame, err = l.readAll(r, frame[:0]); err != nil {
			return err
		}
		if err := wire.DecodeMessages(frame, l.take); err != nil {
			return err
		}
		if cap(frame) > keptBytes {
			frame = nil
		}
	}
}

// keptBytes is the largest buffer that an idle link keeps.
const keptBytes = 64 << 10

// readAll is io.ReadAll into a buffer that is used again.
func (l *link) readAll(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(1024, cap(buf)))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		l.received.Add(int64(n))
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *link) writeLoop() {
	late := time.AfterFunc(time.Hour, func() { _ = l.conn.CloseNow() })
	defer late.Stop()
	late.Stop()
	for {
		select {
		case frame := <-l.out:
			late.Reset(writeTimeout)
			err := l.conn.Write(context.Background(), websocket.MessageText, frame)
			late.Stop()
			if err != nil {
				// The reader sees it too, and ends the link.
				_ = l.conn.CloseNow()
				return
			}
		case <-l.ended:
			return
		}
	}
}

func (l *link) pingLoop() {
	opts := &l.client.opts
	ticker := time.NewTicker(opts.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-l.ended:
			return
		case <-ticker.C:
		}
		if !l.alive(opts.PingTimeout) {
			l.client.log.Warn("client.replica_silent", zap.String("host", l.host))
			_ = l.conn.CloseNow()
			return
		}
	}
}

// alive pings the replica. One that does not answer in time, but sends, is alive:
// it reads nothing while it has enough to do. A ping that fails for another
// reason than time met a connection that has ended.
func (l *link) alive(timeout time.Duration) bool {
	before := l.received.Load()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := l.conn.Ping(ctx)
	return err == nil || ctx.Err() == nil || l.received.Load() != before
}
