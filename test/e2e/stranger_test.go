package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// startStranger starts examples/node/node.py, an agent that shares no code with this repository.
func startStranger(t *testing.T, node, tokenFile string, gateways ...*replica) *process {
	t.Helper()
	script, err := filepath.Abs("../../examples/node/node.py")
	if err != nil {
		t.Fatal(err)
	}
	return start(t, nil, "python3", script, "--gateway", doors(gateways...), "--token-file", tokenFile, "--node", node, "--slots", "8")
}

// TestStranger runs jobs on a node in Python, which was written from docs/node-protocol.md alone. Its
// gateway is killed while jobs run, and in the end another process takes the node over.
func TestStranger(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("the node is a program in Python: %v", err)
	}
	s := newSystem(t)
	const node = "py-1"
	secret, line, code := run(t, nil, "schedctl", "nodes", "token", node)
	if code != 0 {
		t.Fatalf("schedctl nodes token: exit status %d: %s", code, line)
	}
	token := writeFile(t, "token", secret)
	s.gateway = map[string]any{"tokens_file": writeFile(t, "tokens.yaml", line)}
	replicas := s.startReplicas(2, 0)
	stranger := startStranger(t, node, token, replicas...)
	for _, r := range replicas {
		r.awaitNodes(1)
	}

	// More jobs than slots, one of them with a payload and a result that go by HTTP.
	long := strings.Repeat("x", 200_000)
	var jobs []freeslot.Job
	var want []string
	for i := range 100 {
		jobs = append(jobs, freeslot.Job{Service: "echo", Payload: json.RawMessage(strconv.Itoa(i))})
		want = append(want, strconv.Itoa(i))
	}
	jobs = append(jobs, freeslot.Job{Service: "upper", Payload: json.RawMessage(strconv.Quote(long))})
	want = append(want, strconv.Quote(strings.ToUpper(long)))
	ctx := waittest.Context(t)
	for i, h := range submitOurs(t, doors(replicas...), jobs) {
		status, err := h.Wait(ctx)
		if err != nil || string(status.Result) != want[i] || status.Attempt != 1 {
			t.Errorf("job %d: state %s, attempt %d, result %.40s, error %v", i, status.State, status.Attempt, status.Result, err)
		}
	}

	// A job that is cancelled while it runs. It counts for a minute.
	running := submitOurs(t, doors(replicas...), []freeslot.Job{{Service: "count", Payload: json.RawMessage("600")}})[0]
	waittest.Receive(t, "progress of the job", running.Progress())
	if _, said, code := run(t, []string{"FREESLOT_SERVER=" + replicas[0].http()}, "schedctl", "cancel", running.ID()); code != 0 {
		t.Fatalf("schedctl cancel: exit status %d: %s", code, said)
	}
	if status, err := running.Wait(ctx); err != nil || status.State != freeslot.StateCancelled {
		t.Errorf("the cancelled job is %s: %v", status.State, err)
	}

	// The gateway is killed while jobs run for three seconds: they go on, and their ends arrive.
	lost, stays := replicas[0], replicas[1]
	via, err := stays.via(node)
	if err != nil {
		t.Fatal(err)
	}
	if via == stays.id {
		lost, stays = stays, lost
	}
	jobs = nil
	for range 8 {
		jobs = append(jobs, freeslot.Job{Service: "count", Payload: json.RawMessage("30")})
	}
	handles := submitOurs(t, stays.ws(), jobs)
	for _, h := range handles {
		waittest.Receive(t, "progress of a job", h.Progress())
	}
	lost.signal(syscall.SIGKILL)
	for _, h := range handles {
		if status, err := h.Wait(ctx); err != nil || status.State != freeslot.StateSucceeded || status.Attempt != 1 {
			t.Errorf("job %s: state %s, attempt %d: %v", h.ID(), status.State, status.Attempt, err)
		}
	}
	eventually(t, stays.idle)

	// A second process with the token takes the node over, and leaves in good order.
	second := startStranger(t, node, token, stays)
	if code := stranger.wait(); code != 3 {
		t.Errorf("the node that was taken over ended with status %d, expected 3", code)
	}
	if via, err := stays.via(node); err != nil || via != stays.id {
		t.Errorf("the node is connected by %q, expected %q: %v", via, stays.id, err)
	}
	second.stop()
	stays.awaitNodes(0)
	s.checkNoSlotsInUse()
}
