package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
)

// player stands before the replica and passes everything on to it, apart from live updates: these
// it makes itself, as fast as the page draws them.
type player struct {
	server  *http.Server
	address string
	// conns gets the page's connection, and wants the topics that it asks for.
	conns chan *websocket.Conn
	mu    sync.Mutex // guards wants
	wants []string
}

func openPlayer(ctx context.Context, d *bed) *player {
	target := tool.Must(url.Parse(d.url("")))
	p := &player{conns: make(chan *websocket.Conn, 1)}
	passing := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the replica compares it with the origin of the page
	}}
	mux := http.NewServeMux()
	mux.Handle("/", passing)
	mux.HandleFunc("/console/live", p.live)
	listener := tool.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	p.address = listener.Addr().String()
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: stepLimit}
	go func() { _ = p.server.Serve(listener) }() // it ends with close
	return p
}

func (p *player) close() error { return p.server.Close() }

// live gives the page's connection away, and reads what it wants until it ends.
func (p *player) live(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil {
		return // it is answered
	}
	defer func() { _ = conn.CloseNow() }()
	select {
	case p.conns <- conn:
	default: // a page connects once
	}
	for {
		_, text, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		var message struct{ Want []string }
		if json.Unmarshal(text, &message) == nil {
			p.mu.Lock()
			p.wants = message.Want
			p.mu.Unlock()
		}
	}
}

// page waits for the page's connection.
func (p *player) page(ctx context.Context) *websocket.Conn {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	select {
	case conn := <-p.conns:
		return conn
	case <-ctx.Done():
		tool.Check(fmt.Errorf("the page does not connect: %w", ctx.Err()))
		return nil
	}
}

// wanted waits until the page wants a topic.
func (p *player) wanted(ctx context.Context, topic string) {
	for end := time.Now().Add(pageLimit); ; {
		p.mu.Lock()
		has := slices.Contains(p.wants, topic)
		p.mu.Unlock()
		if has {
			return
		}
		if time.Now().After(end) {
			tool.Check(fmt.Errorf("the page does not want %s", topic))
		}
		tool.Check(measure.SleepUntil(ctx, time.Now().Add(pagePoll)))
	}
}

// send sends a frame of text.
func send(ctx context.Context, conn *websocket.Conn, frame any) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	tool.Check(conn.Write(ctx, websocket.MessageText, tool.Must(json.Marshal(frame))))
}

// hello is what the first frame says, of a replica of this build.
func (d *bed) hello(ctx context.Context) map[string]any {
	var session struct{ Replica, Build string }
	d.ask(ctx, "GET", "/console/session", "", &session)
	return map[string]any{"replica": session.Replica, "build": session.Build, "now_ms": time.Now().UnixMilli()}
}

// topicFrame is a frame of a topic.
type topicFrame struct {
	Topic string `json:"topic"`
	Seq   int    `json:"seq"`
	AtMS  int64  `json:"at_ms"`
	Data  any    `json:"data"`
}
