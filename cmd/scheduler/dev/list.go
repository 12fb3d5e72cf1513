package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// listName is the list that a new dev system has.
	listName    = "vip"
	listEntries = `{"entries":[{"id":"user-1"},{"id":"user-2"},{"id":"user-3"}]}`
	listTimeout = 10 * time.Second
)

// seedList makes a small list if there is none with its name. A dev system also works without it.
func (s *system) seedList(ctx context.Context) {
	if s.redis.lacks != "" {
		s.say("no list %s: name lists need a redis-server", listName)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := s.makeList(bounded); err != nil && ctx.Err() == nil {
		s.say("no list %s: %s", listName, err)
	}
}

func (s *system) makeList(ctx context.Context) error {
	path := "/v1/lists/" + listName
	status, _, err := s.call(ctx, http.MethodGet, path, "")
	if err != nil || status != http.StatusNotFound {
		return err
	}
	var session struct {
		ID string `json:"id"`
	}
	for _, step := range []struct{ method, path, body string }{
		{http.MethodPut, path, "{}"},
		{http.MethodPost, path + "/sessions", "{}"},
		{http.MethodPost, path + "/sessions/%s", listEntries},
		{http.MethodPost, path + "/sessions/%s/commit", "{}"},
	} {
		at := step.path
		if session.ID != "" {
			at = fmt.Sprintf(step.path, session.ID)
		}
		status, answer, err := s.call(ctx, step.method, at, step.body)
		if err != nil {
			return err
		}
		if status >= http.StatusMultipleChoices {
			return fmt.Errorf("%s: %s", at, answer)
		}
		if step.path == path+"/sessions" {
			if err := json.Unmarshal(answer, &session); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	}
	return s.awaitList(ctx, path)
}

// awaitList waits until the list serves.
func (s *system) awaitList(ctx context.Context, path string) error {
	ticker := time.NewTicker(nodePoll)
	defer ticker.Stop()
	for {
		_, answer, err := s.call(ctx, http.MethodGet, path, "")
		if err != nil {
			return err
		}
		var list struct {
			State   string          `json:"state"`
			Serving json.RawMessage `json:"serving"`
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if list.Serving != nil && list.State == "active" {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call asks the replica.
func (s *system) call(ctx context.Context, method, path, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.replica.Addr()+path, bytes.NewBufferString(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
