package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// probe has raw agents try what a gateway must not let them do. It returns what it let them do.
type probe struct {
	name string
	run  func(t *testing.T, f *fleet) []Violation
}

// probes are all of them. The last ones slow the way of r1, for good.
func probes() []probe {
	return []probe{
		{"late heartbeat", func(t *testing.T, f *fleet) []Violation {
			return tryLate(t, f, "late-1", func(*rawAgent) frame.Request { return heartbeat() })
		}},
		{"late register", func(t *testing.T, f *fleet) []Violation {
			return tryLate(t, f, "late-2", func(a *rawAgent) frame.Request { return a.registration(5) })
		}},
		{"foreign node", tryForeignNode},
		{"foreign spec", tryForeignSpec},
		{"ends of nodes", tryEndsOfNodes},
		{"ends of a node", tryEndsOfNode},
	}
}

// newProbed is a fleet for probes: its nodes are raw agents, which are silent for long.
func newProbed(t *testing.T, programs string) *fleet {
	t.Helper()
	return newFleet(t, NewRecorder(), t.TempDir(), fleetConfig{
		replicas: 2, cells: 1, interval: 10 * time.Second, limit: time.Minute, programs: programs,
		linked: []string{"late-1", "late-2", "own", "foreign", "owner", "reader", "bad", "good", "single"},
	})
}

// TestGateway: what gateways promise to each other's agents holds, also for what a gateway sends on
// that was frozen.
func TestGateway(t *testing.T) {
	f := newProbed(t, "")
	for _, p := range probes() {
		t.Run(p.name, func(t *testing.T) {
			for _, v := range p.run(t, f) {
				t.Errorf("%s", v)
			}
		})
	}
}

// tryLate sends a request to a frozen gateway when the agent has moved to another one.
func tryLate(t *testing.T, f *fleet, node string, request func(*rawAgent) frame.Request) (found []Violation) {
	before := f.rawAgent(t, node, "r1", 1)
	before.enlist(1)
	frozen := f.programs["r1"]
	frozen.signal(syscall.SIGSTOP)
	defer frozen.signal(syscall.SIGCONT)
	f.rawAgent(t, node, "r2", 2).enlist(1)
	late := request(before)
	id := before.send(late)
	frozen.signal(syscall.SIGCONT)
	answer := before.answer(id)
	if answer.Code == freeslot.CodeUnavailable {
		answer = before.call(late)
	}
	if answer.Code != frame.CodeStaleConnection {
		found = append(found, Violation{"late " + string(late.Type), fmt.Sprintf("a thawed gateway was answered %s %s, expected the error %s", answer.Type, answer.Code, frame.CodeStaleConnection)})
	}
	if link := f.link(node); link != "2" {
		found = append(found, Violation{"late " + string(late.Type), fmt.Sprintf("the node is connected by its connection %q, expected 2", link)})
	}
	return found
}

// link is the number of the connection that Redis has for a node.
func (f *fleet) link(node string) string {
	f.t.Helper()
	parts := strings.Fields(f.text("GET", f.layout(node).Load(node)))
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// text is Redis' answer to one command, "" for none.
func (f *fleet) text(command ...string) string {
	f.t.Helper()
	redis, err := f.client()
	if err != nil {
		f.t.Fatal(err)
	}
	defer redis.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), rawLimit)
	defer cancel()
	text, err := redis.Do(ctx, redis.B().Arbitrary(command...).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		f.t.Fatalf("%v: %v; want no error or rueidis.IsRedisNil(err)", command, err)
	}
	return text
}

// tryForeignNode registers with the id of another node in the profile.
func tryForeignNode(t *testing.T, f *fleet) (found []Violation) {
	a := f.rawAgent(t, "own", "r1", 1)
	register := a.registration(1)
	register.Profile.ID = "foreign"
	if answer := a.call(register); answer.Type != frame.TypeRegistered {
		t.Fatalf("%+v; want answer.Type == frame.TypeRegistered", answer)
	}
	if epoch := f.text("HGET", f.layout("own").Node("own"), "epoch"); epoch != rawEpoch {
		found = append(found, Violation{"foreign node", fmt.Sprintf("the session's node has the epoch %q", epoch)})
	}
	if epoch := f.text("HGET", f.layout("foreign").Node("foreign"), "epoch"); epoch != "" {
		found = append(found, Violation{"foreign node", "the node of the frame was registered"})
	}
	return found
}

// tryForeignSpec reads the job of another node.
func tryForeignSpec(t *testing.T, f *fleet) (found []Violation) {
	owner, reader := f.rawAgent(t, "owner", "r1", 1), f.rawAgent(t, "reader", "r1", 1)
	owner.enlist(1)
	reader.enlist(1)
	submitTo(t, f, owner.node, 1)
	job := owner.begun(1)[0].Attempt.Job
	spec := frame.Request{Type: frame.TypeSpec, JobID: job}
	if answer := owner.call(spec); answer.Job == nil {
		t.Fatalf("the owner was answered %+v", answer)
	}
	if answer := reader.call(spec); answer.Code != freeslot.CodeNotFound {
		found = append(found, Violation{"foreign spec", fmt.Sprintf("a node that does not own the job was answered %s %s", answer.Type, answer.Code)})
	}
	return found
}

// submitTo submits jobs that one raw agent can do, each until it is accepted.
func submitTo(t *testing.T, f *fleet, node string, n int) (jobs []*client.Handle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c := dialFleet(t, f, "r2")
	for range n {
		job := freeslot.Job{Service: node, IdempotencyKey: rand.Text()}
		h, err := c.Submit(ctx, job)
		for err != nil && again(err) && pause(ctx, askAgainAfter) {
			h, err = c.Submit(ctx, job)
		}
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, h)
	}
	return jobs
}

const (
	// together is how many ends share a call with a bad one, and rounds how often that is tried.
	together, rounds = 6, 3
	// nobodysJob is a job that no node owns.
	nobodysJob = "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z"
	// slowWay keeps a call under way for so long that what comes meanwhile shares the next one.
	slowWay = `{"name":"%[1]s","type":"latency","stream":"%[1]s","attributes":{"latency":%[2]d}}`
)

// tryEnds has the ends of a good node share a call with a spoilt one before them, which is of the same
// node or of another.
func tryEnds(t *testing.T, f *fleet, bad, good *rawAgent, spoilt frame.Request, state freeslot.State) []Violation {
	ctx, cancel := context.WithTimeout(t.Context(), rawLimit)
	defer cancel()
	for range rounds {
		jobs := submitTo(t, f, good.node, 1+together)
		var ends []frame.Request
		for _, d := range good.begun(len(jobs)) {
			ends = append(ends, frame.Request{Type: frame.TypeComplete, Attempt: &d.Attempt, State: state})
		}
		ids := []uint64{good.send(ends[0])} // what follows shares the next call
		good.fence()
		refused := bad.send(spoilt)
		bad.fence()
		next := good.send(ends[1:]...)
		for i := range uint64(together) {
			ids = append(ids, next+i)
		}
		if answer := bad.answer(refused); answer.Outcome == string(cell.Completed) {
			t.Fatal("the spoilt end was taken")
		}
		for i, job := range jobs {
			answer := good.answer(ids[i])
			if answer.Code == freeslot.CodeUnavailable {
				answer = good.call(ends[i])
			}
			if status, err := job.Wait(ctx); err != nil || status.State != state { // it keeps its slot
				return []Violation{{"ends", fmt.Sprintf("job %s is %q (%v), its end was answered %s %s", job.ID(), status.State, err, answer.Outcome, answer.Code)}}
			}
		}
	}
	return nil
}

// tryEndsOfNodes: the spoilt end is of another node, which does not own the job.
func tryEndsOfNodes(t *testing.T, f *fleet) []Violation {
	bad, good := f.rawAgent(t, "bad", "r1", 1), f.rawAgent(t, "good", "r1", 1)
	bad.enlist(1)
	good.enlist(1 + together)
	f.slow(t, "r1", 80*time.Millisecond)
	return tryEnds(t, f, bad, good, success(frame.Attempt{Job: nobodysJob, N: 1}), freeslot.StateSucceeded)
}

// tryEndsOfNode: the spoilt end is one that no script can be sent. A cancel never shares a call with
// other nodes.
func tryEndsOfNode(t *testing.T, f *fleet) []Violation {
	good := f.rawAgent(t, "single", "r1", 1)
	good.enlist(1 + together)
	f.slow(t, "r1", 80*time.Millisecond)
	spoilt := success(frame.Attempt{Job: nobodysJob, N: 1})
	spoilt.State, spoilt.Next = freeslot.StateCancelled, frame.NextRetry
	return tryEnds(t, f, good, good, spoilt, freeslot.StateCancelled)
}

// slow slows the way of a program to Redis, in both directions.
func (f *fleet) slow(t *testing.T, name string, by time.Duration) {
	t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		_, err := f.ways[name].Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(slowWay, stream, by.Milliseconds())))
		if err != nil && !errors.Is(err, toxiproxy.ErrToxicAlreadyExists) {
			t.Fatal(err)
		}
	}
}
