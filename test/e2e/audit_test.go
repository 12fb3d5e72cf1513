package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestKilledDuringAChange kills a replica between the entry of a change and the change: the Redis
// that has the node is frozen meanwhile. The entry stays, and once the change is old its outcome is
// unknown.
func TestKilledDuringAChange(t *testing.T) {
	t.Parallel()
	frozen := redistest.New(t)
	s := newSystem(t)
	s.more, s.cells = []*redistest.Target{frozen.Target}, 2
	node := nodeIn(1)
	s.startAgent(nodeSpec{id: node, slots: 1}, newService(t, nil))
	replicas := s.startReplicas(2, 1)
	first, second := replicas[0], replicas[1]

	open := script.Layouts(s.prefix, 2, false)[0].Key("audit:open", "")
	client := s.redis.Client(t)
	frozen.Pause()
	failed := make(chan error, 1)
	go func() {
		res, err := http.Post(first.http()+"/v1/nodes/"+node+"/drain", "", nil)
		if err == nil {
			err = fmt.Errorf("the answer %s", res.Status)
			_ = res.Body.Close()
		}
		failed <- err
	}()
	var entries map[string]string
	waittest.Until(t, "the entry of the change", func() bool {
		var err error
		entries, err = client.Do(waittest.Context(t), client.B().Hgetall().Key(open).Build()).AsStrMap()
		return err == nil && len(entries) == 1
	})
	first.signal(syscall.SIGKILL)
	first.wait()
	if err := waittest.Receive(t, "the end of the request", failed); !strings.Contains(err.Error(), "EOF") &&
		!strings.Contains(err.Error(), "reset") {
		t.Errorf("the request ended with %v; want a broken connection", err)
	}
	frozen.Resume()
	if got := second.audit("drain-node"); got != "/v1/nodes/"+node+"/drain under_way" {
		t.Errorf("right after the kill the audit has %q; want the drain under way", got)
	}
	// As if the change had begun an hour ago.
	for id, entry := range entries {
		began, text, _ := strings.Cut(entry, " ")
		old := fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli())
		var e map[string]any
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("the entry %q: %v", entry, err)
		}
		text = strings.Replace(text, fmt.Sprintf(`"at_ms":%.0f`, e["at_ms"]), `"at_ms":`+old, 1)
		set := client.B().Hset().Key(open).FieldValue().FieldValue(id, began+" "+text).Build()
		if err := client.Do(waittest.Context(t), set).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if got := second.audit("drain-node"); got != "/v1/nodes/"+node+"/drain unknown" {
		t.Errorf("later the audit has %q; want an unknown outcome", got)
	}
}

// audit returns target and outcome of the changes by this call.
func (r *replica) audit(call string) string {
	r.t.Helper()
	var page struct {
		Entries []struct{ Target, Outcome string }
	}
	if status, err := r.get("/v1/audit?call="+call, &page); err != nil || status != http.StatusOK {
		r.t.Fatalf("the audit answers %d, %v; want 200", status, err)
	}
	var all []string
	for _, e := range page.Entries {
		all = append(all, e.Target+" "+e.Outcome)
	}
	return strings.Join(all, ", ")
}
