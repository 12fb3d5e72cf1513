package client

import (
	"bytes"
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

// keptBytes is the largest buffer that an idle connection keeps.
const keptBytes = 64 << 10

// connection is one connection to one replica.
type connection struct {
	client  *Client
	socket  *websocket.Conn
	url     int // the index of its URL in client.urls
	host    string
	welcome wire.Welcome
	since   time.Time
	// early holds messages that came with the welcome.
	early []wire.Message

	// out hands frames to the writer. It has no buffer: a frame that the writer did not take was
	// not sent, so it is safe to send it elsewhere.
	out chan []byte
	// goaway is closed when the replica asks the client to leave, ended when nothing more comes.
	goaway, ended chan struct{}
	// orphans holds a token if there may be jobs to take over.
	orphans chan struct{}

	// received counts bytes, for the pings.
	received atomic.Int64

	// client.mu guards the fields that follow.

	pending map[string]*call
	// leaving is true if the replica sent goaway, closing if all answers have come, dead if the
	// connection has ended.
	leaving, closing, dead bool
}

// connect connects to one replica and takes its welcome. The connection's goroutines run once start
// is called.
func (c *Client) connect(ctx context.Context, index int) (*connection, error) {
	token := c.opts.Token
	if c.opts.TokenSource != nil {
		var err error
		if token, err = c.opts.TokenSource(ctx); err != nil {
			return nil, fmt.Errorf("get a token: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	u := c.urls[index]
	header := http.Header{"User-Agent": {c.opts.userAgent()}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	socket, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: c.opts.HTTPClient, HTTPHeader: header, Subprotocols: []string{wire.Protocol},
	})
	if err != nil {
		return nil, dialError(u.Host, resp, err)
	}
	socket.SetReadLimit(int64(c.opts.MaxMessageBytes))
	first, err := readWelcome(ctx, socket)
	if err != nil {
		_ = socket.CloseNow()
		return nil, dialError(u.Host, nil, err)
	}
	return &connection{
		client: c, socket: socket, url: index, host: u.Host, since: time.Now(),
		welcome: first[0].Welcome, early: first[1:],
		out: make(chan []byte), goaway: make(chan struct{}), ended: make(chan struct{}),
		orphans: make(chan struct{}, 1), pending: map[string]*call{},
	}, nil
}

// dialError makes the error of a failed connect. It leaves out the URL, which can hold a token.
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

// readWelcome returns the messages of the first frame. The first one is the welcome.
func readWelcome(ctx context.Context, socket *websocket.Conn) ([]wire.Message, error) {
	_, frame, err := socket.Read(ctx)
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

// start starts the connection's goroutines, which run until it ends.
func (conn *connection) start() {
	c := conn.client
	c.loops.Go(conn.writeLoop)
	c.loops.Go(conn.pingLoop)
	c.loops.Go(conn.adoptLoop)
	c.loops.Go(func() {
		reason := conn.readLoop()
		_ = conn.socket.CloseNow()
		c.drop(conn, reason)
	})
}

// sayGoodbye closes the connection in good order.
func (conn *connection) sayGoodbye() { _ = conn.socket.Close(websocket.StatusNormalClosure, "") }

// readLoop takes messages until the connection ends. It reads without a deadline: the pings find a
// replica that is gone.
func (conn *connection) readLoop() error {
	for i := range conn.early {
		conn.receive(&conn.early[i])
	}
	var frame bytes.Buffer
	for {
		_, r, err := conn.socket.Reader(context.Background())
		if err != nil {
			return err
		}
		frame.Reset()
		if _, err := frame.ReadFrom(counted{r, &conn.received}); err != nil {
			return err
		}
		if err := wire.DecodeMessages(frame.Bytes(), conn.receive); err != nil {
			return err
		}
		if frame.Cap() > keptBytes {
			frame = bytes.Buffer{}
		}
	}
}

// counted counts the bytes that it reads.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (conn *connection) writeLoop() {
	for {
		select {
		case frame := <-conn.out:
			ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
			err := conn.socket.Write(ctx, websocket.MessageText, frame)
			cancel()
			if err != nil {
				// The reader sees it too, and ends the connection.
				_ = conn.socket.CloseNow()
				return
			}
		case <-conn.ended:
			return
		}
	}
}

func (conn *connection) pingLoop() {
	opts := &conn.client.opts
	ticker := time.NewTicker(opts.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-conn.ended:
			return
		case <-ticker.C:
		}
		if !conn.alive(opts.PingTimeout) {
			conn.client.log.Warn("client.replica_silent", zap.String("host", conn.host))
			_ = conn.socket.CloseNow()
			return
		}
	}
}

// alive pings the replica, and reports whether it lives. A replica that does not answer in time,
// but sends, is alive: it reads nothing while it is busy. A ping that fails for another reason than
// time met a connection that has ended.
func (conn *connection) alive(timeout time.Duration) bool {
	before := conn.received.Load()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := conn.socket.Ping(ctx)
	return err == nil || ctx.Err() == nil || conn.received.Load() != before
}
