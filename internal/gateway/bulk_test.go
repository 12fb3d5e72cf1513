package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

const completeText = `{"type":"complete","id":3,"attempt":"` + jobID + `:1","state":"succeeded","result":%s}`

// post sends a message by HTTP. The token gpu may be all of gpu-*, two only gpu-1.
func (s *server) post(path, token, node, session string, body io.Reader) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://gateway"+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set(frame.NodeHeader, node)
	r.Header.Set(frame.SessionHeader, session)
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func expectAnswer(t *testing.T, resp *http.Response) (answer frame.Answer) {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %s, %.200s, error %v", resp.Status, text, err)
	}
	return answer
}

// TestBulk: the epoch is that of the session, here and at another replica.
func TestBulk(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"own session": false, "session of another replica": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *server) {
				session := "s-1"
				if elsewhere {
					s.cell.link = func() (cell.NodeLink, error) {
						return cell.NodeLink{Epoch: "e1", Link: cell.Link{Session: session, Token: "gpu", Replica: "r-2"}}, nil
					}
				} else {
					session = s.connect().session
					s.cell.link = func() (cell.NodeLink, error) { return cell.NodeLink{}, errors.New("must not be asked") }
				}
				result := `"` + strings.Repeat("r", 1<<20) + `"`
				s.cell.complete = func(_ context.Context, c cell.Completion) (cell.CompletionOutcome, error) {
					if c.Node != "gpu-1" || c.Epoch != "e1" || c.Attempt != (cell.Attempt{Job: jobID, N: 1}) || string(c.Result) != result {
						t.Errorf("completion of %s in epoch %s: %v, result of %d bytes", c.Node, c.Epoch, c.Attempt, len(c.Result))
					}
					c.Begun([]cell.Dispatch{{Attempt: cell.Attempt{Job: "next", N: 1}, Tenant: "t"}})
					return cell.Completed, nil
				}
				answer := expectAnswer(t, s.post(frame.CompletePath, "gpu", "gpu-1", session, strings.NewReader(fmt.Sprintf(completeText, result))))
				if answer.Type != frame.TypeCompleted || answer.ID != 3 || answer.Outcome != string(cell.Completed) || len(answer.Begun) != 1 || answer.Begun[0].Attempt.Job != "next" {
					t.Errorf("answer %+v", answer)
				}
				payload := json.RawMessage(`"` + strings.Repeat("p", 1<<20) + `"`)
				s.cell.spec = func(node, epoch, jobID string) (*freeslot.Job, string, error) {
					if node != "gpu-1" || epoch != "e1" || jobID != "j" {
						t.Errorf("spec of %s for node %s in epoch %s", jobID, node, epoch)
					}
					return &freeslot.Job{Service: "tts", Payload: payload}, "acme", nil
				}
				answer = expectAnswer(t, s.post(frame.SpecPath, "gpu", "gpu-1", session, strings.NewReader(`{"type":"spec","job_id":"j"}`)))
				if answer.Type != frame.TypeSpec || answer.Tenant != "acme" || answer.Job == nil || string(answer.Job.Payload) != string(payload) {
					t.Errorf("answer of type %s, tenant %s", answer.Type, answer.Tenant)
				}
			})
		})
	}
}

// TestBulkRefused: none of these reaches the node's jobs. In session, "" is that of gpu-1 and "none" is
// none.
func TestBulkRefused(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(completeText, "1")
	for name, c := range map[string]struct {
		path, token, node, session, body string
		status                           int
		code, field                      string
	}{
		"no token":            {frame.CompletePath, "", "gpu-1", "", good, 401, "unauthenticated", "Authorization"},
		"unknown token":       {frame.CompletePath, "gpu-1", "gpu-1", "", good, 401, "unauthenticated", "Authorization"},
		"another node":        {frame.CompletePath, "gpu", "gpu-2", "", good, 409, "stale_connection", "Freeslot-Session"},
		"node of no token":    {frame.CompletePath, "two", "gpu-2", "", good, 403, "permission_denied", "Freeslot-Node"},
		"another token":       {frame.CompletePath, "two", "gpu-1", "", good, 409, "stale_connection", "Freeslot-Session"},
		"another session":     {frame.CompletePath, "gpu", "gpu-1", "another", good, 409, "stale_connection", "Freeslot-Session"},
		"no session":          {frame.CompletePath, "gpu", "gpu-1", "none", good, 409, "stale_connection", "Freeslot-Session"},
		"no node":             {frame.CompletePath, "gpu", "", "", good, 400, "invalid_argument", "Freeslot-Node"},
		"bad node":            {frame.CompletePath, "gpu", "gpu-{1}", "", good, 400, "invalid_argument", "Freeslot-Node"},
		"no body":             {frame.CompletePath, "gpu", "gpu-1", "", "", 400, "invalid_argument", "frame"},
		"empty array":         {frame.CompletePath, "gpu", "gpu-1", "", "[]", 400, "invalid_argument", "body"},
		"two messages":        {frame.CompletePath, "gpu", "gpu-1", "", "[" + good + "," + good + "]", 400, "invalid_argument", "type"},
		"spec as a complete":  {frame.CompletePath, "gpu", "gpu-1", "", `{"type":"spec","job_id":"j"}`, 400, "invalid_argument", "type"},
		"complete as a spec":  {frame.SpecPath, "gpu", "gpu-1", "", good, 400, "invalid_argument", "type"},
		"no attempt":          {frame.CompletePath, "gpu", "gpu-1", "", `{"type":"complete","state":"succeeded"}`, 400, "invalid_argument", "attempt"},
		"spec of another job": {frame.SpecPath, "gpu", "gpu-1", "", `{"type":"spec","job_id":"j"}`, 404, "not_found", "job_id"},
		"too large":           {frame.CompletePath, "gpu", "gpu-1", "", strings.Repeat(" ", maxBulkBytes+1), 413, "payload_too_large", ""},
		"another path":        {frame.Path + "/register", "gpu", "gpu-1", "", good, 404, "not_found", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *server) {
				session := s.connect().session
				s.cell.link = func() (cell.NodeLink, error) {
					return cell.NodeLink{Epoch: "e1", Link: cell.Link{Session: "of another node", Token: "gpu"}}, nil
				}
				s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
					t.Error("a report was taken")
					return "", nil
				}
				switch c.session {
				case "none":
					session = ""
				case "another":
					session += "x"
				}
				expectRefusal(t, s.post(c.path, c.token, c.node, session, strings.NewReader(c.body)), c.status, c.code, c.field)
				time.Sleep(time.Second) // net/http takes half of it to close a connection whose body was not read
			})
		})
	}
	inBubble(t, func(t *testing.T, s *server) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway"+frame.SpecPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer gpu")
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		expectRefusal(t, resp, http.StatusBadRequest, "invalid_argument", "method")
	})
}

// TestBulkBounds: bodies that do not come have an end, and there is a limit to how many.
func TestBulkBounds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		sessions := map[string]string{}
		tokenOf := func(node string) string {
			switch {
			case strings.HasPrefix(node, "more-"):
				return "more"
			case node == "gpu-1":
				return "two"
			}
			return "gpu"
		}
		nodeOf := func(i int) string { // the first half of the places is for the nodes of one token
			return fmt.Sprint([]string{"gpu-", "more-"}[i/bulkOfOwner], 2+i/nodeBulk)
		}
		for i := range maxBulk {
			if node := nodeOf(i); sessions[node] == "" {
				sessions[node] = s.connectAs(tokenOf(node), node, 1).session
			}
		}
		for _, node := range []string{"gpu-last", "more-last", "gpu-1"} {
			sessions[node] = s.connectAs(tokenOf(node), node, 1).session
		}
		refused := func(node, whose string) {
			t.Helper()
			resp := s.post(frame.SpecPath, tokenOf(node), node, sessions[node], strings.NewReader(`{"type":"spec","job_id":"j"}`))
			if message := expectRefusal(t, resp, http.StatusServiceUnavailable, "overloaded", ""); !strings.HasSuffix(message, whose) {
				t.Errorf("%s: %s; want strings.HasSuffix(message, whose)", node, message)
			}
		}
		passes := func(node string) {
			t.Helper()
			resp := s.post(frame.SpecPath, tokenOf(node), node, sessions[node], strings.NewReader(`{"type":"spec","job_id":"j"}`))
			expectRefusal(t, resp, http.StatusNotFound, "not_found", "job_id")
		}
		began := time.Now()
		ended := make(chan time.Duration, maxBulk)
		var slow []*io.PipeWriter
		for i := range maxBulk {
			body, pen := io.Pipe()
			slow = append(slow, pen)
			if i == nodeBulk {
				synctest.Wait()
				refused("gpu-2", "4 large results and specs are under way, which is the limit of the node")
				passes("gpu-last")
			}
			if i == bulkOfOwner {
				synctest.Wait()
				refused("gpu-last", "32 large results and specs are under way, which is the limit of the token gpu")
				passes("more-last")
			}
			node := nodeOf(i)
			go func() {
				resp := s.post(frame.CompletePath, tokenOf(node), node, sessions[node], body)
				if resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("a body that does not come: %s", resp.Status)
				}
				ended <- time.Since(began)
			}()
		}
		synctest.Wait()
		refused("gpu-1", "64 large results and specs are under way, which is the limit of the replica")
		for range maxBulk {
			if took := <-ended; took < bulkTimeout || took > bulkDeadline(-1)+time.Second {
				t.Errorf("a body that does not come ends after %s", took)
			}
		}
		for _, pen := range slow {
			_ = pen.Close()
		}
		s.cell.link = func() (cell.NodeLink, error) { // the session has ended long ago
			return cell.NodeLink{Epoch: "e1", Link: cell.Link{Session: sessions["gpu-2"], Token: "gpu"}}, nil
		}
		resp := s.post(frame.SpecPath, "gpu", "gpu-2", sessions["gpu-2"], strings.NewReader(`{"type":"spec","job_id":"j"}`))
		expectRefusal(t, resp, http.StatusNotFound, "not_found", "job_id")
	})
}

func TestBulkWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.cell.link = func() (cell.NodeLink, error) { return cell.NodeLink{}, errors.New("away") }
		resp := s.post(frame.SpecPath, "gpu", "gpu-1", "s", strings.NewReader(`{"type":"spec","job_id":"j"}`))
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %s", resp.Status)
		}
	})
}
