package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestAgentOfItsOwnUser: the user that `schedctl acl --node` makes for one node may do all that its
// agent does: the agent registers, gets jobs one after the other and many at once, hands slots
// over, sends progress, cancels, changes its profile and leaves.
func TestAgentOfItsOwnUser(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	s := &system{t: t, redis: redis.Target, prefix: redis.Prefix(t)}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret of node-a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, code := run(t, nil, "schedctl", "acl", "--role", "agent", "--node", "node-a", "--password-file", password, "--apply",
		"--redis-url", redis.URL(), "--key-prefix", s.prefix)
	if code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, said)
	}
	svc := newService(t, nil)
	tells := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or else the end of the request is not seen
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = fmt.Fprintln(w, `{"progress": 1}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // the job is cancelled
	}))
	t.Cleanup(tells.Close)
	config := func(slots int) map[string]any {
		return map[string]any{
			"node": map[string]any{"id": "node-a", "max_concurrency": slots},
			"services": []any{
				map[string]any{"name": testService, "http": map[string]any{"url": svc.URL}},
				map[string]any{"name": "tell", "http": map[string]any{"url": tells.URL}},
			},
		}
	}
	user := map[string]any{"username": "agent-node-a", "password_file": password}
	a := s.startFileAgentAs(user, config(2))
	r := s.startReplicas(1, 1)[0]
	ctx := waittest.Context(t)
	c := dial(ctx, t, r)
	const jobs = 60
	var load sync.WaitGroup
	for i := range jobs {
		load.Go(func() {
			if err := runOnce(ctx, c, i+1); err != nil {
				t.Error(err)
			}
		})
	}
	load.Wait()
	job, err := c.Submit(ctx, freeslot.Job{Service: "tell"})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Receive(t, "progress", job.Progress())
	if _, err := c.Cancel(ctx, job.ID()); err != nil {
		t.Fatal(err)
	}
	if st, err := job.Wait(ctx); err != nil || st.State != freeslot.StateCancelled {
		t.Errorf("%+v, %v; want no error, st.State == freeslot.StateCancelled", st, err)
	}
	a.reload(config(5))
	eventually(t, func() error {
		return r.sees("node-a", 5, nil, freeslot.Service{Name: testService}, freeslot.Service{Name: "tell"})
	})
	a.stop()
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("after its stop there is still %v", left)
	}
	if log := a.stderr.String(); strings.Contains(log, "NOPERM") {
		t.Errorf("something is refused to it: %s", log)
	}
}
