package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const (
	// jobsEnv is how many jobs go through each driver.
	jobsEnv     = "JOBS"
	defaultJobs = 10000
	batchSize   = 50
	// window bounds the jobs that have been submitted and not answered.
	window = 200
	// maxTurns is the number of faults in a run; there is at most one for each jobsOfTurn jobs.
	maxTurns   = 18
	jobsOfTurn = 500
	// through is how many jobs that were submitted during a fault are answered before it ends.
	through = 50
	// queued bounds the commands that wait for a driver.
	queued = 16 * window
)

// TestFaults puts jobs through the drivers of each language while replicas are killed and frozen and
// connections are cut, in turns. Each accepted job must be answered exactly once, with its own
// result.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("make conformance runs it")
	}
	for _, lang := range languages() {
		t.Run(lang.name, func(t *testing.T) { playFaults(t, lang) })
	}
}

func playFaults(t *testing.T, lang *language) {
	jobs := defaultJobs
	if text := os.Getenv(jobsEnv); text != "" {
		var err error
		if jobs, err = strconv.Atoi(text); err != nil || jobs < 1 {
			t.Fatalf("%s is %q, expected a number from 1", jobsEnv, text)
		}
	}
	f := newFleet(t)
	r := &run{
		t: t, fleet: f, jobs: make([]jobRun, jobs), turns: min(maxTurns, jobs/jobsOfTurn), lines: make(chan tagged, 64),
		calls: map[int]call{}, attempts: map[string]bool{},
	}
	r.client, r.worker = r.start(lang, "client"), r.start(lang, "worker")
	r.play()
	r.client = r.start(lang, "client")
	r.readAgain()
}

// run is one run of the jobs.
type run struct {
	t              *testing.T
	fleet          *fleet
	client, worker *fed
	lines          chan tagged // of both drivers
	jobs           []jobRun    // by number
	again          []int       // jobs whose submit is repeated
	next           int         // the first job that was not submitted
	open           int         // jobs that were submitted and not answered
	answered       int
	attempts       map[string]bool // that began
	calls          map[int]call    // of the client that have no answer
	lastID         int
	turns, turn    int
	undo           func() // ends the present fault; nil if there is none
	through        int    // the answered jobs that were submitted during the present fault
}

// jobRun is one job. turn is the fault during which it was submitted last, 0 for none. answers
// counts the answers to its wait, of which answer is the first.
type jobRun struct {
	id      string
	turn    int
	answers int
	answer  *endedJob
}

// call is a batch or a wait of these jobs.
type call struct {
	wait bool
	jobs []int
}

// tagged is a line of one of the two drivers; nil is the end of its output.
type tagged struct {
	from *fed
	text json.RawMessage
}

// fed is a driver whose commands wait in a queue, so that the run goes on reading meanwhile.
type fed struct {
	*driver
	queue chan string
}

// start starts a driver whose lines come by r.lines.
func (r *run) start(lang *language, kind string) *fed {
	r.t.Helper()
	d := &fed{driver: startDriver(r.t, lang, kind), queue: make(chan string, queued)}
	over := make(chan struct{})
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for command := range d.queue {
			_, _ = d.stdin.Write([]byte(command + "\n")) // the end of the output tells if the driver has gone
		}
		_ = d.stdin.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for text := range d.lines {
			select {
			case r.lines <- tagged{d, text}:
			case <-over:
			}
		}
		select {
		case r.lines <- tagged{from: d}:
		case <-over:
		}
	}()
	r.t.Cleanup(func() {
		close(over)
		_ = d.cmd.Process.Kill()
		<-read
	})
	return d
}

// put queues a command.
func (r *run) put(d *fed, command object) {
	r.t.Helper()
	select {
	case d.queue <- string(asJSON(r.t, command)):
	default:
		r.t.Fatalf("%d commands wait for a driver, expected fewer", len(d.queue))
	}
}

// play plays the run.
func (r *run) play() {
	r.t.Helper()
	r.put(r.worker, object{
		"id": 1, "do": "start", "gateway": urls(r.fleet.workerWays), "token": fleetToken, "node": "gpu-7", "slots": 64,
		"services": []object{{"name": "echo"}}, "heartbeat_ms": 500, "stop_timeout_ms": 1000,
	})
	r.await("the worker's start", r.worker, 1)
	r.dial()
	for r.answered < len(r.jobs) {
		r.submit()
		r.breakThings()
		got := r.receive("all jobs are answered")
		if got.from == r.worker {
			r.handle(got.text)
		} else {
			r.take(got.text)
		}
	}
	if r.undo != nil {
		r.undo()
	}
	r.end()
}

// dial connects the client.
func (r *run) dial() {
	r.t.Helper()
	r.lastID++
	r.put(r.client, object{
		"id": r.lastID, "do": "dial", "url": urls(r.fleet.clientWays), "token": "", "min_backoff_ms": 10, "max_backoff_ms": 500,
		"ping_interval_ms": 500, "ping_timeout_ms": 2000,
	})
	r.await("the client's dial", r.client, r.lastID)
}

// receive returns the next line. What moves is the run itself.
func (r *run) receive(want string) tagged {
	r.t.Helper()
	got := waittest.Receive(r.t, want, r.lines, func() any {
		return fmt.Sprintf("%d of %d answered, %d begun, turn %d", r.answered, len(r.jobs), len(r.attempts), r.turn)
	})
	if got.text == nil {
		r.t.Fatalf("a driver has ended, but %s was expected\n%s", want, got.from.log.tail())
	}
	return got
}

// answer is a line of a driver.
type answer struct {
	ID      int
	Event   string
	Attempt string
	Payload struct{ N int }
	JobID   string `json:"job_id"`
	Jobs    []struct {
		JobID string `json:"job_id"`
		Error *driverError
	}
	Job   *endedJob
	Error *driverError
}

type endedJob struct {
	JobID      string `json:"job_id"`
	State      string
	Node       string
	Attempt    int
	FinishedAt int64 `json:"finished_at_ms"`
	Result     *struct {
		N, Twice int
		Attempt  string // the one that made the result
	}
}

type driverError struct{ Code, Message string }

func (r *run) decode(text json.RawMessage) *answer {
	r.t.Helper()
	a := new(answer)
	if err := json.Unmarshal(text, a); err != nil {
		r.t.Fatalf("a driver wrote %.300s: %v", text, err)
	}
	return a
}

// await waits for the answer to the only command under way.
func (r *run) await(want string, from *fed, id int) {
	r.t.Helper()
	got := r.receive(want)
	if a := r.decode(got.text); got.from != from || a.ID != id || a.Error != nil {
		r.t.Fatalf("%s came, expected %s", got.text, want)
	}
}

// submit submits batches as long as there is room. Each job has a key, so that a submit can be
// repeated.
func (r *run) submit() {
	r.t.Helper()
	for r.open+batchSize <= window && (r.next < len(r.jobs) || len(r.again) > 0) {
		c := call{}
		for len(c.jobs) < batchSize && (len(r.again) > 0 || r.next < len(r.jobs)) {
			n := r.next
			if len(r.again) > 0 {
				n, r.again = r.again[0], r.again[1:]
			} else {
				r.next++
			}
			c.jobs = append(c.jobs, n)
		}
		jobs := make([]object, len(c.jobs))
		for i, n := range c.jobs {
			jobs[i] = object{
				"service": "echo", "payload": object{"n": n}, "idempotency_key": "job-" + strconv.Itoa(n), "max_attempts": 100,
			}
		}
		for _, n := range c.jobs {
			if r.jobs[n].turn = 0; r.undo != nil {
				r.jobs[n].turn = r.turn
			}
		}
		r.open += len(c.jobs)
		r.ask(c, object{"do": "batch", "jobs": jobs})
	}
}

// ask sends a command to the client.
func (r *run) ask(c call, command object) {
	r.t.Helper()
	r.lastID++
	r.calls[r.lastID] = c
	command["id"] = r.lastID
	r.put(r.client, command)
}

// take takes an answer of the client.
func (r *run) take(text json.RawMessage) {
	r.t.Helper()
	a := r.decode(text)
	c, known := r.calls[a.ID]
	switch {
	case !known:
		r.t.Fatalf("the client answered twice, or to nothing: %.300s", text)
	case c.wait:
		r.ended(c.jobs[0], a, text)
	default:
		r.accepted(&c, a, text)
	}
	delete(r.calls, a.ID)
}

// accepted takes the answers to a batch. What was not accepted is submitted again.
func (r *run) accepted(c *call, a *answer, text json.RawMessage) {
	r.t.Helper()
	if a.Error == nil && len(a.Jobs) != len(c.jobs) {
		r.t.Fatalf("a batch of %d jobs was answered %.300s", len(c.jobs), text)
	}
	for i, n := range c.jobs {
		refused := a.Error
		if refused == nil {
			refused = a.Jobs[i].Error
		}
		if refused != nil {
			if refused.Code != "unavailable" && refused.Code != "overloaded" {
				r.t.Fatalf("job %d was refused with %+v, expected unavailable or overloaded", n, *refused)
			}
			r.open--
			r.again = append(r.again, n)
			continue
		}
		r.same(n, a.Jobs[i].JobID)
		r.ask(call{wait: true, jobs: []int{n}}, object{"do": "wait", "job_id": a.Jobs[i].JobID})
	}
}

// same notes the id of a job. Its key makes it the same job, however often it is submitted.
func (r *run) same(n int, id string) {
	r.t.Helper()
	if job := &r.jobs[n]; job.id == "" {
		job.id = id
	} else if job.id != id {
		r.t.Errorf("job %d is %s, and was %s before", n, id, job.id)
	}
}

// ended takes the result of a job.
func (r *run) ended(n int, a *answer, text json.RawMessage) {
	r.t.Helper()
	job := &r.jobs[n]
	job.answers++
	r.open--
	r.answered++
	if r.undo != nil && job.turn == r.turn {
		r.through++
	}
	job.answer = a.Job
	if a.Job == nil || a.Job.State != "succeeded" || a.Job.JobID != job.id || a.Job.Result == nil ||
		a.Job.Result.N != n || a.Job.Result.Twice != 2*n || !r.attempts[a.Job.Result.Attempt] || job.answers != 1 {
		r.t.Errorf("job %d (%s) was answered %.500s, answer %d; expected its result, once", n, job.id, text, job.answers)
	}
}

// handle is the handler of the worker's jobs.
func (r *run) handle(text json.RawMessage) {
	r.t.Helper()
	a := r.decode(text)
	if a.Event != "job" {
		return // an answer to finish, or a handler that was told to stop and has finished
	}
	if r.attempts[a.Attempt] {
		r.t.Errorf("attempt %s of job %d began twice", a.Attempt, a.Payload.N)
	}
	r.attempts[a.Attempt] = true
	r.same(a.Payload.N, a.JobID)
	r.put(r.worker, object{
		"id": 2, "do": "finish", "attempt": a.Attempt,
		"result": object{"n": a.Payload.N, "twice": 2 * a.Payload.N, "attempt": a.Attempt},
	})
}

// breakThings begins the next fault when enough jobs were answered. It ends the present one when jobs
// were answered that were submitted meanwhile: then the drivers have found a way around it.
func (r *run) breakThings() {
	r.t.Helper()
	switch {
	case r.undo != nil && r.through >= through:
		r.undo()
		r.undo = nil
	case r.undo == nil && r.turn < r.turns && r.answered*(r.turns+1) >= (r.turn+1)*len(r.jobs):
		kind := []string{"client", "worker"}[r.turn%2]
		of := slices.IndexFunc(r.fleet.replicas, func(replica *replica) bool { return replica.has(kind) })
		if of < 0 {
			return // it is on its way; the next line looks again
		}
		r.turn++
		r.through = 0
		r.undo = r.fault(of, kind)
	}
}

// fault begins a fault of the replica to which one of the drivers is connected, and returns what
// ends it.
func (r *run) fault(of int, kind string) (undo func()) {
	r.t.Helper()
	broken := r.fleet.replicas[of]
	said := func(what string) {
		r.t.Logf("%d answered: %s %s, where the %s is", r.answered, what, broken.name, kind)
	}
	switch r.turn % 3 {
	case 0:
		said("kill")
		broken.kill()
		return broken.start
	case 1:
		said("freeze")
		broken.signal(syscall.SIGSTOP)
		return func() { broken.signal(syscall.SIGCONT) }
	default:
		said("cut the ways to")
		ways := []interface {
			Start() error
			Stop()
		}{r.fleet.clientWays[of], r.fleet.workerWays[of]}
		for _, w := range ways {
			w.Stop()
		}
		return func() {
			for _, w := range ways {
				if err := w.Start(); err != nil {
					r.t.Errorf("open the way again: %v", err)
				}
			}
		}
	}
}

// end stops both drivers in order. Nothing may come any more but the ends.
func (r *run) end() {
	r.t.Helper()
	if len(r.calls) > 0 || r.turn < r.turns {
		r.t.Errorf("%d calls have no answer, %d faults were made; expected 0 and %d", len(r.calls), r.turn, r.turns)
	}
	r.t.Logf("%d jobs answered, %d attempts begun, %d faults", r.answered, len(r.attempts), r.turn)
	r.put(r.worker, object{"id": 3, "do": "stop"})
	for {
		got := r.receive("the worker stops")
		if got.from == r.client {
			r.t.Errorf("the client wrote %.300s, expected nothing more", got.text)
			continue
		}
		a := r.decode(got.text)
		if a.Event == "stopped" {
			if a.Error != nil {
				r.t.Errorf("the worker stopped with %+v, expected no error", *a.Error)
			}
			break
		}
	}
	r.close(r.client)
	r.close(r.worker)
}

// close ends a driver.
func (r *run) close(d *fed) {
	r.t.Helper()
	close(d.queue)
	if got := waittest.Receive(r.t, "the end of a driver", r.lines); got.text != nil {
		r.t.Errorf("a driver wrote %.300s, expected nothing more", got.text)
	}
	if err := waittest.Receive(r.t, "the end of a driver", d.ended); err != nil {
		r.t.Errorf("a driver ended with %v, expected exit code 0\n%s", err, d.log.tail())
	}
}

// readAgain reads the jobs from another session. An end that came after the answered one would show.
func (r *run) readAgain() {
	r.t.Helper()
	r.dial()
	for some := range slices.Chunk(r.jobs, batchSize) {
		for _, do := range []string{"attach", "wait"} {
			for i, job := range some {
				r.put(r.client, object{"id": i, "do": do, "job_id": job.id})
			}
			for range some {
				text := r.receive("the jobs again").text
				a := r.decode(text)
				if a.Error != nil || do == "wait" && !reflect.DeepEqual(a.Job, some[a.ID].answer) {
					r.t.Errorf("job %s was answered %+v, and later %.500s", some[a.ID].id, some[a.ID].answer, text)
				}
			}
		}
	}
	r.close(r.client)
}
