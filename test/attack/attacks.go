package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

var attacks = []attack{
	{name: "kinds of waiting jobs, max_kinds lifted", tries: 1100, strike: newKind, victim: waitingJob, lifted: true},
	{name: "kinds of waiting jobs", tries: 1100, strike: newKind, victim: waitingJob},
	{name: "schedules", tries: 300, strike: newSchedule, victim: waitingJob},
	{name: "priority above max_priority", tries: 500, strike: highPriority, victim: waitingJob},
	{name: "silent handshakes of one token", tries: 256, strike: silentHandshake, victim: newAgent},
	{name: "sessions of one node", tries: 400, strike: sameNode, victim: newAgent},
	{name: "sessions of invented nodes", tries: 400, strike: inventedNode, victim: newAgent},
	{name: "silent strangers at gateway.listen", tries: 2500, strike: silentAtGateway, victim: newAgent},
	{name: "invented readers of a list", tries: 3000, strike: inventedReader, victim: reader},
	{name: "idle strangers at listen", tries: 1000, strike: silentAtMain, victim: waitingJob},
	{name: "idle connections of one client", tries: 1000, strike: idleClient, victim: waitingJob},
	{name: "invalid tokens", tries: 2000, strike: invalidToken, victim: waitingJob},
}

func newKind(ctx context.Context, s *system, n int) (refused bool) {
	return s.call(ctx, "greedy", http.MethodPost, "/v1/jobs", fmt.Sprintf(
		`{"service":"tts","requirement":{"label_rules":[{"label":"x","operator":"not_in","values":["%d"]}]}}`, n)) != nil
}

// waitingJob submits a job of another kind for each call.
func waitingJob(ctx context.Context, s *system, n int) error {
	return s.call(ctx, "victim", http.MethodPost, "/v1/jobs", fmt.Sprintf(
		`{"service":"tts","requirement":{"label_rules":[{"label":"y","operator":"not_in","values":["%d"]}]}}`, n%10))
}

func newSchedule(ctx context.Context, s *system, n int) (refused bool) {
	return s.call(ctx, "greedy", http.MethodPut, fmt.Sprint("/v1/schedules/s", n),
		`{"cron":"@every 1s","job":{"service":"tts"}}`) != nil
}

func highPriority(ctx context.Context, s *system, _ int) (refused bool) {
	return s.call(ctx, "greedy", http.MethodPost, "/v1/jobs", `{"service":"tts","priority":9}`) != nil
}

func silentHandshake(ctx context.Context, s *system, _ int) (refused bool) {
	conn, err := s.handshake(ctx, "greedy-node")
	if err != nil {
		return true
	}
	s.hold(forced{conn})
	return false
}

// forced closes a WebSocket without a handshake.
type forced struct{ *websocket.Conn }

func (f forced) Close() error { return f.CloseNow() }

func sameNode(ctx context.Context, s *system, _ int) (refused bool) {
	return s.holdAgent(ctx, "one-node", "one-1") != nil
}

func inventedNode(ctx context.Context, s *system, n int) (refused bool) {
	return s.holdAgent(ctx, "greedy-node", fmt.Sprint("greedy-", n)) != nil
}

// newAgent connects another agent for each call.
func newAgent(ctx context.Context, s *system, n int) error {
	return s.holdAgent(ctx, "victim-node", fmt.Sprint("victim-", 1+n))
}

func (s *system) holdAgent(ctx context.Context, token, node string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.agent(ctx, token, node)
	if err == nil {
		s.hold(forced{conn})
	}
	return err
}

func silentAtGateway(ctx context.Context, s *system, _ int) (refused bool) {
	return s.silent(ctx, s.gateway, "") != nil
}

func silentAtMain(ctx context.Context, s *system, _ int) (refused bool) {
	return s.silent(ctx, s.main, "") != nil
}

// idleClient makes one call with a valid token, and leaves the connection open.
func idleClient(ctx context.Context, s *system, _ int) (refused bool) {
	return s.silent(ctx, s.main, "GET /v1/jobs?limit=1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer greedy\r\n\r\n") != nil
}

// silent connects, sends a request if there is one, and leaves the connection open.
func (s *system) silent(ctx context.Context, address, request string) error {
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s.hold(conn)
	if request == "" {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func inventedReader(ctx context.Context, s *system, n int) (refused bool) {
	return s.report(ctx, "greedy", fmt.Sprint("invented-", n)) != nil
}

func reader(ctx context.Context, s *system, n int) error {
	return s.report(ctx, "victim", fmt.Sprint("reader-", n%10))
}

func (s *system) report(ctx context.Context, token, client string) error {
	return s.call(ctx, token, http.MethodPost, "/v1/list-reports", fmt.Sprintf(
		`{"client":"%s","lists":{"vip":{"birth":"%s","serves":1}}}`, client, s.birth))
}

func invalidToken(ctx context.Context, s *system, n int) (refused bool) {
	return s.call(ctx, fmt.Sprint("invalid-", n), http.MethodGet, "/v1/jobs", "") != nil
}
