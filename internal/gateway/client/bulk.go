package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const (
	// A request of HTTP has bulkTimeout, and a second more for each bulkTimeoutBytes. The answer to
	// a spec request then has as much again, computed for the largest answer.
	bulkTimeout      = 15 * time.Second
	bulkTimeoutBytes = 64 << 10
	// bulkReadLimit is the largest answer: a spec of 16 MiB.
	bulkReadLimit = 17 << 20
)

// post sends a request that is too large for the connection beside it, so that no heartbeat waits
// behind it. It ends with the connection, whose session it belongs to. It returns the errors of
// roundTrip.
func (s *Store) post(
	ctx context.Context, conn *connection, path string, req *frame.Request,
) (*frame.Answer, error) {
	if err := conn.enter(ctx, s.bulk); err != nil {
		return nil, err
	}
	defer func() { <-s.bulk }()
	body, err := frame.Append(nil, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(bulkTime(len(body)), func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	defer context.AfterFunc(conn.ctx, func() { cancel(nil) })()
	to := *conn.url
	to.Path, to.Scheme = path, "http"+to.Scheme[len("ws"):]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+conn.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(frame.NodeHeader, s.cfg.Node)
	r.Header.Set(frame.SessionHeader, conn.welcome.Session)
	resp, err := s.client().Do(r)
	if err != nil {
		return nil, fmt.Errorf("no answer to %s: %w", req.Type, err)
	}
	defer resp.Body.Close()
	if path == frame.SpecPath {
		late.Reset(bulkTime(bulkReadLimit))
	}
	return readBulk(resp)
}

// bulkTime returns how long this many bytes may take.
func bulkTime(bytes int) time.Duration {
	return bulkTimeout + time.Duration(bytes/bulkTimeoutBytes)*time.Second
}

func readBulk(resp *http.Response) (answer *frame.Answer, err error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, bulkReadLimit))
	if err != nil {
		return nil, fmt.Errorf("read the gateway's answer: %w", err)
	}
	_ = frame.DecodeAnswers(body, func(a *frame.Answer) error { answer = a; return nil })
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		// Nothing was carried out, and the refusal is not final: the token's line may have changed.
		return nil, fmt.Errorf("the gateway answered with HTTP status %s", resp.Status)
	case answer != nil && answer.Code != "":
		answer.Type = frame.TypeError // over HTTP errors have no type
		return nil, answerError(answer)
	case answer == nil, resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the gateway answered with HTTP status %s", resp.Status)
	}
	return answer, nil
}
