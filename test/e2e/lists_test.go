package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// sourceView is the source of a list as a replica shows it.
type sourceView struct {
	Running *runView
	Runs    []runView
}

type runView struct {
	ID, Replica, Result, Why string
	Rows, Version            int64
}

// listView is a list as a replica shows it.
type listView struct {
	Name, State string
	Serving     *struct{ Number, Count int64 }
}

// call sends a body as JSON with a token, and decodes the answer into v unless that is nil. An
// empty token is none.
func (r *replica) call(token, method, path string, body, v any) (status int, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http()+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	var answer json.RawMessage
	status, err = do(req, &answer)
	if err == nil && v != nil {
		err = json.Unmarshal(answer, v)
	}
	return status, err
}

// want makes a call that must be answered with this status.
func (r *replica) want(status int, token, method, path string, body, v any) {
	r.t.Helper()
	var answer json.RawMessage
	if got, err := r.call(token, method, path, body, &answer); err != nil || got != status {
		r.t.Fatalf("%s %s of %s: %d, %v, %s; want %d", method, path, r.id, got, err, answer, status)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(answer, v); err != nil {
		r.t.Fatalf("%s %s of %s answers %s: %v; want %T", method, path, r.id, answer, err, v)
	}
}

// followsSource makes the list vip, which has a source, and waits until it serves.
func (r *replica) followsSource(token string, spec map[string]any) {
	r.t.Helper()
	r.want(http.StatusOK, token, http.MethodPut, "/v1/lists/vip", spec, nil)
	r.want(http.StatusOK, token, http.MethodPut, "/v1/lists/vip/source", map[string]any{"source": "crm"}, nil)
	r.want(http.StatusOK, token, http.MethodPost, "/v1/lists/vip/source/run", nil, nil)
	var now sourceView
	waittest.Until(r.t, "the first run to end", func() bool {
		_, err := r.call(token, http.MethodGet, "/v1/lists/vip/source", nil, &now)
		return err == nil && len(now.Runs) == 1
	}, func() any { return now })
	if now.Runs[0].Result != "served" {
		r.t.Fatalf("the first run ended as %+v; want it served", now.Runs[0])
	}
}

// serves returns the version that serves, how many ids it has, and whether the list has one more.
func (r *replica) serves(id string) string {
	r.t.Helper()
	var list listView
	r.want(http.StatusOK, "", http.MethodGet, "/v1/lists/vip", nil, &list)
	var answers struct{ Found []struct{ Member bool } }
	r.want(http.StatusOK, "", http.MethodPost, "/v1/lists/vip/query", map[string]any{"ids": []string{id}}, &answers)
	if list.Serving == nil || len(answers.Found) != 1 {
		r.t.Fatalf("the list is %+v and answers %+v; want a version and one answer", list, answers)
	}
	return fmt.Sprintf("version %d, %d ids, %s: %t", list.Serving.Number, list.Serving.Count, id, answers.Found[0].Member)
}

// TestKilledInARunOfASource kills the replica that reads a source, in the middle of the answer. The
// list goes on to serve. Once the lease is over another replica makes the run anew, and the history
// has both.
func TestKilledInARunOfASource(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	var reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := reads.Add(1)
		if read > 1 {
			_, _ = io.WriteString(w, "new\n")
		}
		_, _ = io.WriteString(w, "a\nb\nc\n")
		if read == 2 {
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			<-r.Context().Done() // the reader is gone
		}
	}))
	t.Cleanup(server.Close)
	s := newSystem(t)
	s.lists = map[string]any{"sources": map[string]any{"crm": map[string]any{"kind": "http", "url": server.URL}}}
	replicas := s.startReplicas(2, 0)
	first, second := replicas[0], replicas[1]
	first.followsSource("", map[string]any{})
	first.want(http.StatusOK, "", http.MethodPost, "/v1/lists/vip/source/run", nil, nil)
	waittest.Receive(t, "the middle of the answer", begun)
	var now sourceView
	first.want(http.StatusOK, "", http.MethodGet, "/v1/lists/vip/source", nil, &now)
	if now.Running == nil {
		t.Fatalf("the source is %+v in the middle of a run; want one that runs", now)
	}
	killed, left := first, second
	if now.Running.Replica == second.id {
		killed, left = second, first
	}
	killed.signal(syscall.SIGKILL)
	killed.wait()
	const before, after = "version 1, 3 ids, new: false", "version 2, 4 ids, new: true"
	if got := left.serves("new"); got != before {
		t.Errorf("after the kill the list has %s; want %s", got, before)
	}
	s.endLease("vip")
	waittest.Until(t, "another run to end", func() bool {
		now = sourceView{} // decoding keeps the fields that are absent
		_, err := left.call("", http.MethodGet, "/v1/lists/vip/source", nil, &now)
		return err == nil && len(now.Runs) == 3
	}, func() any { return now })
	if got := left.serves("new"); got != after {
		t.Errorf("after the next run the list has %s; want %s", got, after)
	}
	var history []string
	for _, run := range now.Runs {
		history = append(history, fmt.Sprintf("%s by %s, %d rows, version %d", run.Result, run.Replica, run.Rows, run.Version))
	}
	if history[0] != "served by "+left.id+", 4 rows, version 2" || history[1] != "lost by "+killed.id+", 0 rows, version 0" {
		t.Errorf("the history has %q; want a run of %s that serves, and before it one that %s lost", history, left.id, killed.id)
	}
	var all struct{ Versions []struct{ Number int64 } }
	left.want(http.StatusOK, "", http.MethodGet, "/v1/lists/vip/versions", nil, &all)
	if n := reads.Load(); n != 3 || len(all.Versions) != 2 {
		t.Errorf("%d reads made %d versions; want 3 reads and 2 versions", n, len(all.Versions))
	}
}

// endLease ends the lease of a run of a list's source, as if 30 s had passed.
func (s *system) endLease(list string) {
	s.t.Helper()
	layout, client, ctx := script.Layouts(s.prefix, 1, false)[0], s.redis.Client(s.t), waittest.Context(s.t)
	key := layout.Key("lists:source", list)
	text, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	if err != nil {
		s.t.Fatal(err)
	}
	var record map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &record); err != nil || record["lease"] == nil {
		s.t.Fatalf("the source of the list is %s, %v; want one with a lease", text, err)
	}
	record["lease"] = json.RawMessage("1")
	changed, err := json.Marshal(record)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, res := range client.DoMulti(
		ctx, client.B().Set().Key(key).Value(string(changed)).Build(),
		client.B().Zadd().Key(layout.Key("lists:sources", "")).ScoreMember().ScoreMember(1, list).Build(),
	) {
		if err := res.Error(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestKilledInAnApprovedChange kills the replica that has approved the deletion of a list, while
// the server with the list's ids is frozen. The request is decided once, and another replica goes
// on with the deletion.
func TestKilledInAnApprovedChange(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a\nb\nc\n")
	}))
	t.Cleanup(server.Close)
	s, data := newSystem(t), redistest.New(t)
	var lines strings.Builder
	tokens := make(map[string]string)
	for _, name := range []string{"ada", "bob", "eve"} {
		secret, line, code := run(t, nil, "schedctl", "tokens", "new", name, "--role", "admin", "--tenant", "ops")
		if code != 0 {
			t.Fatalf("schedctl tokens new: exit status %d: %s; want 0", code, line)
		}
		tokens[name] = strings.TrimSpace(secret)
		lines.WriteString(line)
	}
	s.callers = writeFile(t, "tokens.yaml", lines.String())
	s.lists = map[string]any{
		"sources":  map[string]any{"crm": map[string]any{"kind": "http", "url": server.URL}},
		"servers":  map[string]any{"data": map[string]any{"url": data.URL()}},
		"approval": map[string]any{"deletion": true},
	}
	first, second := s.startReplica("r1"), s.startReplica("r2")
	ada, bob, eve := tokens["ada"], tokens["bob"], tokens["eve"]
	first.followsSource(ada, map[string]any{"server": "data"})
	var asked struct{ Request requestView }
	first.want(http.StatusAccepted, ada, http.MethodDelete, "/v1/lists/vip", nil, &asked)
	path, digest := "/v1/list-requests/"+asked.Request.ID, map[string]any{"digest": asked.Request.Digest}

	data.Pause()
	var decided requestView
	first.want(http.StatusOK, bob, http.MethodPost, path+"/approve", digest, &decided)
	if decided.State != "approved" || decided.DecidedBy == "" {
		t.Fatalf("the request is %+v; want it approved by bob", decided)
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	var list listView
	second.want(http.StatusOK, ada, http.MethodGet, "/v1/lists/vip", nil, &list)
	if list.State != "deleting" {
		t.Errorf("after the kill the list is %s; want deleting", list.State)
	}
	second.want(http.StatusConflict, eve, http.MethodPost, path+"/approve", digest, nil)
	data.Resume()
	waittest.Until(t, "the list to go", func() bool {
		status, err := second.call(ada, http.MethodGet, "/v1/lists/vip", nil, nil)
		return err == nil && status == http.StatusNotFound
	})
	second.want(http.StatusOK, ada, http.MethodPut, "/v1/lists/vip", map[string]any{}, nil)
	second.want(http.StatusConflict, eve, http.MethodPost, path+"/approve", digest, nil)
	list = listView{}
	second.want(http.StatusOK, ada, http.MethodGet, "/v1/lists/vip", nil, &list)
	var last requestView
	second.want(http.StatusOK, ada, http.MethodGet, path, nil, &last)
	if list.State == "deleting" || last != decided {
		t.Errorf("the list that was made anew is %s, the request %+v; want the list there, and %+v", list.State, last, decided)
	}
}

// requestView is a change that waits for approval, or was decided.
type requestView struct {
	ID, Digest, State string
	DecidedBy         string `json:"decided_by"`
	DecidedMS         int64  `json:"decided_ms"`
}
