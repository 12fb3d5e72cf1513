package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// fileAgent is a nodeagent whose configuration file a test rewrites.
type fileAgent struct {
	*process
	s    *system
	file string
	user map[string]any // the agent's user in the redis block; nil is the default user
}

// startFileAgent starts an agent by a configuration, to which it adds where it connects.
func (s *system) startFileAgent(config map[string]any) *fileAgent {
	s.t.Helper()
	return s.startFileAgentAs(nil, config)
}

func (s *system) startFileAgentAs(user, config map[string]any) *fileAgent {
	s.t.Helper()
	a := &fileAgent{s: s, user: user, file: filepath.Join(s.t.TempDir(), "nodeagent.yaml")}
	a.write(config)
	a.process = start(s.t, nil, "nodeagent", "--config", a.file)
	return a
}

func (a *fileAgent) write(config map[string]any) {
	a.s.t.Helper()
	a.s.connect(config, "")
	if redis, ok := config["redis"].(map[string]any); ok {
		maps.Copy(redis, a.user)
	}
	writeConfig(a.s.t, a.file, config)
}

func (a *fileAgent) reload(config map[string]any) {
	a.s.t.Helper()
	a.write(config)
	a.signal(syscall.SIGHUP)
}

// sees is nil when the replica knows the node just so.
func (r *replica) sees(node string, slots int, labels map[string]string, services ...freeslot.Service) error {
	var got freeslot.Node
	if status, err := r.get("/v1/nodes/"+node, &got); err != nil || status != http.StatusOK {
		return fmt.Errorf("status %d: %w", status, err)
	}
	if fmt.Sprint(got.MaxConcurrency, got.Labels, got.Services) != fmt.Sprint(slots, labels, services) {
		return fmt.Errorf("replica %s sees %+v", r.id, got)
	}
	return nil
}

// TestReload: under a load of jobs the configuration changes 20 times, labels, versions, executors
// and slots up and down. Each job is executed once and ends once, and the fleet follows each
// change.
func TestReload(t *testing.T) { bothWays(t, testReload) }

func testReload(t *testing.T, s *system) {
	const (
		reloads = 20
		clients = 24
	)
	r := s.startReplica("r1")
	svc := newService(t, nil)
	config := func(i int) (file map[string]any, slots int, labels map[string]string, service freeslot.Service) {
		slots = []int{8, 1, 16, 3}[i%4]
		labels = map[string]string{"round": strconv.Itoa(i)}
		service = freeslot.Service{Name: testService, Version: fmt.Sprintf("1.%d", i), Endpoint: svc.URL}
		return map[string]any{
			"node": map[string]any{"id": "node-a", "max_concurrency": slots, "labels": labels},
			"services": []any{map[string]any{
				"name": service.Name, "version": service.Version, "endpoint": service.Endpoint,
				"http": map[string]any{"url": svc.URL, "timeout": (time.Minute + time.Duration(i%2)*time.Second).String()},
			}},
		}, slots, labels, service
	}
	file, _, _, _ := config(0)
	a := s.startFileAgent(file)
	r.awaitNodes(1)

	ctx := waittest.Context(t)
	c := dial(ctx, t, r)
	var jobs atomic.Int64
	ended := make(chan struct{})
	var load sync.WaitGroup
	for range clients {
		load.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := runOnce(ctx, c, int(jobs.Add(1))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := 1; i <= reloads; i++ {
		before := jobs.Load()
		file, slots, labels, service := config(i)
		a.reload(file)
		eventually(t, func() error { return r.sees("node-a", slots, labels, service) })
		eventually(t, func() error { // by each of them jobs are run
			if n := jobs.Load() - before; n < 2*clients {
				return fmt.Errorf("%d jobs since the change", n)
			}
			return nil
		})
	}
	close(ended)
	load.Wait()
	for i := 1; i <= int(jobs.Load()); i++ {
		if n := svc.seen[i]; n != 1 {
			t.Errorf("job %d was executed %d times", i, n)
		}
	}
	if svc.most > 16 {
		t.Errorf("up to %d slots were in use", svc.most)
	}
	t.Logf("%d jobs during %d reloads", jobs.Load(), reloads)
	eventually(t, func() error { return r.idle() })
	s.checkNoSlotsInUse()
	a.stop()
	if left := s.mentions("node-a"); len(left) > 0 {
		t.Errorf("after its stop there is still %v", left)
	}
}

// runOnce expects the job's first attempt to succeed.
func runOnce(ctx context.Context, c *client.Client, index int) error {
	data, err := json.Marshal(payload{Index: index, Slots: 1})
	if err != nil {
		return err
	}
	status, err := c.Run(ctx, freeslot.Job{Service: testService, Payload: data})
	if err == nil && (status.State != freeslot.StateSucceeded || status.Attempt != 1) {
		err = fmt.Errorf("job %d: %+v", index, status)
	}
	return err
}

// TestServiceIsDown: a node whose only service is down takes no jobs. The job that it was given
// meanwhile waits, and runs when the service is back; a new one is refused until then.
func TestServiceIsDown(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.redis.Age(t, s.prefix+":version:nodes")
	var down atomic.Bool
	failed := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			failed <- struct{}{}
		}
	}))
	t.Cleanup(server.Close)
	s.startFileAgent(map[string]any{
		"node": map[string]any{"id": "node-a", "max_concurrency": 2},
		"services": []any{map[string]any{
			"name": testService, "http": map[string]any{"url": server.URL},
			"check": map[string]any{"http": map[string]any{"url": server.URL}, "interval": "100ms", "fall": 2},
		}},
	})
	r := s.startReplica("r1")
	service := freeslot.Service{Name: testService}
	eventually(t, func() error { return r.sees("node-a", 2, nil, service) })
	ctx := waittest.Context(t)
	c := dial(ctx, t, r)
	job := freeslot.Job{Service: testService, MaxAttempts: 10}
	if st, err := c.Run(ctx, job); err != nil || st.State != freeslot.StateSucceeded {
		t.Fatalf("%+v, %v; want no error, st.State == freeslot.StateSucceeded", st, err)
	}

	down.Store(true)
	h, err := c.Submit(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	<-failed
	eventually(t, func() error { return r.sees("node-a", 2, nil) })
	var refusal *freeslot.Error
	if _, err := c.Submit(ctx, job); !errors.As(err, &refusal) || refusal.Code != freeslot.CodeNoMatchingNode || refusal.Breakdown["service"] != 1 {
		t.Errorf("%v, expected that no node has the service", err)
	}
	eventually(t, func() error {
		var st freeslot.JobStatus
		if status, err := r.get("/v1/jobs/"+h.ID(), &st); err != nil || status != http.StatusOK || st.State != freeslot.StateWaiting {
			return fmt.Errorf("%d, %+v, %w", status, st, err)
		}
		return nil
	})
	down.Store(false)
	if st, err := h.Wait(ctx); err != nil || st.State != freeslot.StateSucceeded || st.Attempt < 2 {
		t.Errorf("%+v, %v; want no error, st.State == freeslot.StateSucceeded, st.Attempt >= 2", st, err)
	}
}
