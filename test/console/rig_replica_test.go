package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// Tokens of replicas that ask for one, by role.
var tokens = map[string]string{
	"viewer": "viewer-token-of-32-characters-0000", "client": "client-token-of-32-characters-0000",
	"tenant-operator": "tenant-token-of-32-characters-0000", "operator": "operator-token-of-32-characters-00",
	"admin": "admin-token-of-32-characters-00000",
}

const tenant = "acme"

// fleet is a Redis with its replicas and nodes.
type fleet struct {
	t     *testing.T
	redis *redistest.Server
	// configuration is added to that of each replica.
	configuration map[string]any
	// scheduler is the program that replicas run.
	scheduler string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	takeTurn(t)
	return newIdleFleet(t)
}

// newIdleFleet is for a test that mostly waits.
func newIdleFleet(t *testing.T) *fleet {
	t.Helper()
	return &fleet{
		t: t, redis: redistest.New(t, redistest.AppendOnly("everysec")), scheduler: filepath.Join(programs, "scheduler"),
	}
}

// withTokens makes replicas ask for a token.
func (f *fleet) withTokens() *fleet {
	var list []map[string]any
	for role, token := range tokens {
		one := map[string]any{"role": role, "token": token, "tenant": "ops"}
		if role == "client" || role == "tenant-operator" {
			one["tenant"] = tenant
		}
		list = append(list, one)
	}
	f.configuration = map[string]any{"tokens": list}
	return f
}

// replica is a scheduler process.
type replica struct {
	t     *testing.T
	addr  string
	cmd   *exec.Cmd
	ended chan struct{}
	log   *bytes.Buffer // complete once ended is closed
}

// replica starts `scheduler serve` on address, a free one if it is empty, and waits until it is
// ready.
func (f *fleet) replica(id, address string) *replica {
	f.t.Helper()
	config := map[string]any{
		"replica_id": id, "redis": map[string]any{"url": f.redis.URL()}, "lists": map[string]any{"dir": f.t.TempDir()},
	}
	for k, v := range f.configuration {
		config[k] = v
	}
	data, err := json.Marshal(config) // JSON is YAML, too
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.t.TempDir(), id+".yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	r := &replica{t: f.t, ended: make(chan struct{}), log: new(bytes.Buffer)}
	r.cmd = exec.Command(f.scheduler, "serve", "--listen", address, "--config", file)
	r.cmd.Env = ownEnvironment()
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	started := make(chan string, 1)
	go r.read(stderr, started)
	f.t.Cleanup(r.stop)
	r.addr = waittest.Receive(f.t, "the start of "+id, started)
	if r.addr == "" {
		f.t.Fatalf("the replica %s did not start", id)
	}
	waittest.Succeeds(f.t, "a ready replica", func() error { return r.get("/readyz", "", nil) })
	return r
}

// ownEnvironment is the process' own without freeslot's variables.
func ownEnvironment() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FREESLOT_") {
			env = append(env, e)
		}
	}
	return env
}

// read keeps what the process logs, and sends its address once it listens.
func (r *replica) read(stderr io.Reader, started chan<- string) {
	defer close(r.ended)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.log.Write(append(lines.Bytes(), '\n'))
		var event struct{ Event, Address string }
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Event == "replica.started" {
			started <- event.Address
		}
	}
	close(started)
	_ = r.cmd.Wait()
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}

// stop ends the process, and shows what it logged if the test failed.
func (r *replica) stop() {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	<-r.ended
	if r.t.Failed() {
		r.t.Logf("replica %s:\n%s", r.addr, r.log)
	}
}

func (r *replica) console() string { return "http://" + r.addr + "/console/" }

// get decodes what a path answers.
func (r *replica) get(path, token string, out any) error {
	return r.ask(http.MethodGet, path, token, "", out)
}

func (r *replica) ask(method, path, token, body string, out any) error {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: waittest.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, answer.StatusCode, data)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// submit submits a job and returns its id.
func (r *replica) submit(token, job string) string {
	r.t.Helper()
	var answer struct {
		ID string `json:"job_id"`
	}
	if err := r.ask(http.MethodPost, "/v1/jobs", token, job, &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer.ID
}

// state waits until the job has one of the states.
func (r *replica) state(token, id string, states ...string) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("job %s to be %q", id, states), func() error {
		var job struct{ State string }
		if err := r.get("/v1/jobs/"+id, token, &job); err != nil {
			return err
		}
		for _, s := range states {
			if job.State == s {
				return nil
			}
		}
		return fmt.Errorf("it is %s", job.State)
	})
}

// node starts a node in this process. Services: "hold" runs until it is
// cancelled, "break" fails in a way that is retried, "fail" for good, "spoil" with its
// payload; any other answers at once.
func (f *fleet) node(n freeslot.Node) *worker.Worker {
	f.t.Helper()
	// A handler that holds its job is not waited for.
	w, err := worker.New(worker.Config{RedisURL: f.redis.URL(), Node: n, StopTimeout: time.Millisecond})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range n.Services {
		handler := handlers[s.Name]
		if handler == nil {
			handler = handlers["echo"]
		}
		w.Handle(s.Name, handler)
	}
	if err := w.Start(waittest.Context(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = w.Stop(waittest.Context(f.t)) })
	return w
}

var handlers = map[string]worker.HandlerFunc{
	"echo": func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil },
	"hold": func(ctx context.Context, _ *worker.Job) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	},
	"break": func(_ context.Context, job *worker.Job) (any, error) {
		return nil, worker.RetryAfter(fmt.Errorf("the model %s is gone", job.Payload), 0)
	},
	"spoil": func(_ context.Context, job *worker.Job) (any, error) {
		if err := job.Progress(string(job.Payload[:min(len(job.Payload), 2000)])); err != nil {
			return nil, err
		}
		var text string
		if err := json.Unmarshal(job.Payload, &text); err != nil {
			return nil, err
		}
		return nil, errors.New(text)
	},
	"fail": func(_ context.Context, job *worker.Job) (any, error) {
		return nil, fmt.Errorf("the input %s is not for me", job.Payload)
	},
}

func services(names ...string) (list []freeslot.Service) {
	for _, n := range names {
		list = append(list, freeslot.Service{Name: n})
	}
	return list
}
