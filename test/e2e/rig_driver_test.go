package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/freeslot/freeslot"
)

// driver is a Node.js script of wsclient: it reads a plan and prints events, one JSON line each.
type driver struct {
	*process
	read int
}

// startDriver runs a script with its plan.
func startDriver(t *testing.T, script string, plan any) *driver {
	t.Helper()
	d := &driver{process: start(t, nil, "node", "wsclient/"+script)}
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(d.stdin, "%s\n", data); err != nil {
		t.Fatalf("give %s its plan: %v", script, err)
	}
	return d
}

// expect waits for the named event and decodes it into v. Any other event fails the test.
func (d *driver) expect(name string, v any) {
	d.t.Helper()
	line, next, err := d.stdout.line(d.t, d.read)
	if err != nil {
		d.t.Fatalf("the driver did not tell %q: %v", name, err)
	}
	d.read = next
	var event struct {
		Event   string `json:"event"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		d.t.Fatalf("the driver wrote %q: %v", line, err)
	}
	if event.Event != name {
		d.t.Fatalf("the driver told %q, expected %q: %s", event.Event, name, event.Message)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal([]byte(line), v); err != nil {
		d.t.Fatalf("event %s: %v", name, err)
	}
}

// expectDone waits for the last event of submit.mjs and for the end of the script. That a job waits
// is no event then.
func (d *driver) expectDone(done *submitDone) {
	d.t.Helper()
	line, next, err := d.stdout.line(d.t, d.read)
	if err == nil && line == `{"event":"waiting"}` {
		d.read = next
	}
	d.expect("done", done)
	if code := d.wait(); code != 0 {
		d.t.Errorf("the driver ended with status %d", code)
	}
}

// submitPlan is the input of submit.mjs.
type submitPlan struct {
	URLs        []string       `json:"urls"`
	Jobs        []freeslot.Job `json:"jobs"`
	Concurrency int            `json:"concurrency"`
	Batch       int            `json:"batch"`
}

// answer is what submit.mjs knows of one job.
type answer struct {
	JobID   string `json:"job_id"`
	Replica string `json:"replica"`
	// Accepted, Assigned and Results count the messages.
	Accepted  int                `json:"accepted"`
	Assigned  int                `json:"assigned"`
	Results   int                `json:"results"`
	Node      string             `json:"node"`
	Attempt   int                `json:"attempt"`
	State     freeslot.State     `json:"state"`
	Error     *freeslot.JobError `json:"error"`
	Result    json.RawMessage    `json:"result"`
	Code      freeslot.Code      `json:"code"`
	Message   string             `json:"message"`
	Field     string             `json:"field"`
	Breakdown map[string]int     `json:"breakdown"`
}

// submitDone is the last event of submit.mjs.
type submitDone struct {
	Answers []answer `json:"answers"`
	// Waited counts the jobs that were accepted without a slot.
	Waited int `json:"waited"`
	// Strays are messages that should not have come.
	Strays   []json.RawMessage `json:"strays"`
	Replicas []string          `json:"replicas"`
	Arrays   []int             `json:"arrays"`
	Frames   []int             `json:"frames"`
}

// check expects that nothing came that should not have.
func (s *submitDone) check(t *testing.T) {
	t.Helper()
	for i, stray := range s.Strays {
		if i == 5 {
			t.Errorf("and %d more", len(s.Strays)-i)
			break
		}
		t.Errorf("unexpected message: %s", stray)
	}
}

// ok is nil when the client got each message of the job exactly once and the job succeeded.
func (a *answer) ok() error {
	switch {
	case a.Code != "":
		return fmt.Errorf("refused: %s: %s", a.Code, a.Message)
	case a.Accepted != 1 || a.Assigned != 1 || a.Results != 1:
		return fmt.Errorf("job %s: accepted %d times, assigned %d times, %d results", a.JobID, a.Accepted, a.Assigned, a.Results)
	case a.State != freeslot.StateSucceeded:
		why := ""
		if a.Error != nil {
			why = ": " + a.Error.Error()
		}
		return fmt.Errorf("job %s ended %s on %s%s", a.JobID, a.State, a.Node, why)
	}
	return nil
}
