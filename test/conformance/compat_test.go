package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// compatBase names the commit whose client and worker are tried.
const compatBase = "COMPAT_BASE"

// TestCompat runs the Go client and worker of an earlier commit against this build's replicas: each
// call once, and then many jobs under faults.
func TestCompat(t *testing.T) {
	base := os.Getenv(compatBase)
	if base == "" {
		t.Skipf("%s names no commit; make compat does", compatBase)
	}
	lang := &language{name: base, command: []string{buildDriver(t, base)}}
	t.Run("calls", func(t *testing.T) { playCalls(t, lang) })
	t.Run("faults", func(t *testing.T) { playFaults(t, lang) })
}

// buildDriver builds this suite's driver with the packages of a commit.
func buildDriver(t *testing.T, commit string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	folder := filepath.Join(root, ".dev", "conformance", "compat")
	source, driver, archive := filepath.Join(folder, "source"), filepath.Join(folder, "driver"), filepath.Join(folder, "source.tar")
	command := func(dir, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	const place = "test/conformance_driver" // in the main module of any commit
	if err := os.MkdirAll(filepath.Join(source, place), 0o755); err != nil {
		t.Fatal(err)
	}
	command(root, "git", "archive", "--format=tar", "-o", archive, commit)
	command(source, "tar", "-xf", archive)
	if err := os.CopyFS(filepath.Join(source, place), os.DirFS("driver")); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-buildvcs=false", "-o", driver}
	options, err := os.ReadFile(filepath.Join(source, "client", "options.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(options), "TokenSource") {
		args = append(args, "-tags", "fixed_token")
	}
	command(source, "go", append(args, "./"+place)...)
	return driver
}

// caller gives commands to a driver, one after the other, and expects that they succeed.
type caller struct {
	*driver
	last int
}

// begin sends a command.
func (c *caller) begin(command object) (id int) {
	c.t.Helper()
	c.last++
	command["id"] = c.last
	c.tell(string(asJSON(c.t, command)))
	return c.last
}

// told is a line of a driver.
type told struct {
	answer
	Done     bool
	Progress *struct{ Value json.RawMessage }
}

// end waits for an answer to a command.
func (c *caller) end(id int) *told {
	c.t.Helper()
	r := new(told)
	c.read(c.find("the answer", func(l line) bool { return l.ID == id }), r)
	return r
}

func (c *caller) do(command object) *told {
	c.t.Helper()
	text := string(asJSON(c.t, command))
	r := c.end(c.begin(command))
	if r.Error != nil {
		c.t.Fatalf("%s: %+v, expected no error\n%s", text, *r.Error, c.log.tail())
	}
	return r
}

func (c *caller) read(text json.RawMessage, to any) {
	c.t.Helper()
	if err := json.Unmarshal(text, to); err != nil {
		c.t.Fatalf("the driver wrote %.300s: %v", text, err)
	}
}

// event waits for an event and returns its attempt.
func (c *caller) event(name string) (attempt string) {
	c.t.Helper()
	l := new(line)
	c.read(c.find("the event "+name, func(l line) bool { return l.Event == name }), l)
	return l.Attempt
}

// compat is a client and a worker of another build.
type compat struct {
	t              *testing.T
	fleet          *fleet
	client, worker *caller
	jobs           int // that submit submitted
}

// usedKey is the idempotency key of the first job.
const usedKey = "job-1"

func playCalls(t *testing.T, lang *language) {
	c := &compat{
		t: t, fleet: newFleet(t), client: &caller{driver: startDriver(t, lang, "client")},
		worker: &caller{driver: startDriver(t, lang, "worker")},
	}
	c.worker.do(object{
		"do": "start", "gateway": urls(c.fleet.workerWays), "token": fleetToken, "node": "gpu-7", "slots": 8,
		"services": []object{{"name": "echo"}}, "heartbeat_ms": 500, "stop_timeout_ms": 1000,
	})
	c.dial(c.client)
	c.submitOne()
	c.submitBatch()
	c.showProgress()
	c.attach(&caller{driver: startDriver(t, lang, "client")})
	c.cancel()
	c.drain()
	c.client.do(object{"do": "close"})
	c.worker.do(object{"do": "stop"})
	c.worker.event("stopped")
	c.client.finish()
	c.worker.finish()
}

func (c *compat) dial(client *caller) {
	c.t.Helper()
	client.do(object{"do": "dial", "url": urls(c.fleet.clientWays), "token": "", "min_backoff_ms": 10, "max_backoff_ms": 500})
}

// submit submits a job, and returns when a handler runs it.
func (c *compat) submit() (job, attempt string) {
	c.t.Helper()
	c.jobs++
	key := "job-" + strconv.Itoa(c.jobs)
	job = c.client.do(object{
		"do": "submit", "job": object{"service": "echo", "payload": object{"n": 7}, "idempotency_key": key},
	}).JobID
	if attempt = c.worker.event("job"); attempt != job+":1" {
		c.t.Fatalf("attempt %s begins, expected the first of %s", attempt, job)
	}
	return job, attempt
}

// expect waits for the end of a job.
func (c *compat) expect(client *caller, job, state string) {
	c.t.Helper()
	got := client.do(object{"do": "wait", "job_id": job}).Job
	if got == nil || got.State != state || state == "succeeded" && (got.Result == nil || got.Result.N != 7) {
		c.t.Errorf("job %s ended as %+v, expected %s", job, got, state)
	}
}

func (c *compat) succeed(attempt string) {
	c.t.Helper()
	c.worker.do(object{"do": "finish", "attempt": attempt, "result": object{"n": 7}})
}

func (c *compat) submitOne() {
	c.t.Helper()
	job, attempt := c.submit()
	c.succeed(attempt)
	c.expect(c.client, job, "succeeded")
}

// submitBatch submits three jobs, of which one is refused.
func (c *compat) submitBatch() {
	c.t.Helper()
	good, other := object{"service": "echo"}, object{"service": "echo", "payload": "other", "idempotency_key": usedKey}
	jobs := c.client.do(object{"do": "batch", "jobs": []object{good, other, good}}).Jobs
	if len(jobs) != 3 || jobs[1].Error == nil || jobs[1].Error.Code != "conflict" {
		c.t.Fatalf("the batch was answered %s, expected its second job refused as a conflict", asJSON(c.t, jobs))
	}
	for range 2 {
		c.succeed(c.worker.event("job"))
	}
	c.expect(c.client, jobs[0].JobID, "succeeded")
	c.expect(c.client, jobs[2].JobID, "succeeded")
}

func (c *compat) showProgress() {
	c.t.Helper()
	job, attempt := c.submit()
	follow := c.client.begin(object{"do": "progress", "job_id": job})
	c.worker.do(object{"do": "progress", "attempt": attempt, "value": "half"})
	if got := c.client.end(follow); got.Progress == nil || string(got.Progress.Value) != `"half"` {
		c.t.Errorf("progress is %+v, expected half", got)
	}
	c.succeed(attempt)
	if got := c.client.end(follow); !got.Done {
		c.t.Errorf("progress goes on with %+v, expected its end", got)
	}
	c.expect(c.client, job, "succeeded")
}

// attach takes a job over to another client. The first one is told so.
func (c *compat) attach(other *caller) {
	c.t.Helper()
	job, attempt := c.submit()
	first := c.client.begin(object{"do": "wait", "job_id": job})
	c.dial(other)
	other.do(object{"do": "attach", "job_id": job})
	if got := c.client.end(first); got.Error == nil || got.Error.Code != "unavailable" {
		c.t.Errorf("the first client gets %+v, expected unavailable", got)
	}
	c.succeed(attempt)
	c.expect(other, job, "succeeded")
	other.do(object{"do": "close"})
	other.finish()
}

func (c *compat) cancel() {
	c.t.Helper()
	job, attempt := c.submit()
	if got := c.client.do(object{"do": "cancel", "job_id": job}).Job; got == nil || got.State != "cancelling" {
		c.t.Errorf("a job that runs is %+v when it was cancelled, expected cancelling", got)
	}
	if got := c.worker.event("cancelled"); got != attempt {
		c.t.Errorf("attempt %s is cancelled, expected %s", got, attempt)
	}
	c.worker.do(object{"do": "finish", "attempt": attempt, "error": object{"code": "stopped", "message": "it was told to"}})
	c.expect(c.client, job, "cancelled")
}

// drain stops the replica of the client while its job runs. The client goes on at another one.
func (c *compat) drain() {
	c.t.Helper()
	job, attempt := c.submit()
	var of int
	waittest.Succeeds(c.t, "a replica has the client's session alone", func() error {
		if of = slices.IndexFunc(c.fleet.replicas, func(r *replica) bool { return r.has("client") }); of < 0 {
			return errors.New("none has")
		}
		return nil
	})
	stopped := c.fleet.replicas[of]
	stopped.signal(syscall.SIGTERM)
	waittest.Receive(c.t, "the end of replica "+stopped.name, stopped.ended)
	c.succeed(attempt)
	c.expect(c.client, job, "succeeded")
	c.submitOne()
}
