package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
)

// kind is one sort of job, with the nodes that can run it.
type kind struct {
	name        string
	requirement freeslot.Requirement
	slots       int
	nodes       []string
}

// fleetNodes are three nodes of different capability and size.
func fleetNodes() []nodeSpec {
	return []nodeSpec{
		{id: "node-a", slots: 8, tts: []string{"de", "fr"}},
		{id: "node-b", slots: 16, tts: []string{"en", "es"}, pools: []string{"batch"}},
		{id: "node-c", slots: 24, tts: []string{"de", "en-US"}, labels: map[string]string{"gpu": "a100"}},
	}
}

// fleetKinds fill every slot of every node when enough of each are submitted: node-a by french,
// node-b by spanish, node-c by gpu.
func fleetKinds() []kind {
	return []kind{
		{name: "any", nodes: []string{"node-a", "node-b", "node-c"}},
		{name: "austrian", requirement: freeslot.Requirement{TargetLanguage: "de-AT"}, nodes: []string{"node-a", "node-c"}},
		{name: "french", requirement: freeslot.Requirement{TargetLanguage: "FR"}, nodes: []string{"node-a"}},
		{name: "spanish", requirement: freeslot.Requirement{TargetLanguage: "es"}, nodes: []string{"node-b"}},
		{name: "english", requirement: freeslot.Requirement{TargetLanguage: "en"}, nodes: []string{"node-b"}},
		{name: "batch", requirement: freeslot.Requirement{Pool: "batch"}, slots: 2, nodes: []string{"node-b"}},
		{name: "gpu", requirement: freeslot.Requirement{Labels: map[string]string{"gpu": "a100"}}, nodes: []string{"node-c"}},
		{name: "wide", slots: 3, nodes: []string{"node-a", "node-b", "node-c"}},
	}
}

func (k *kind) job(index int) freeslot.Job {
	j := freeslot.Job{Service: testService, Requirement: k.requirement, Slots: k.slots}
	j.Payload, _ = json.Marshal(payload{Index: index, Slots: j.SlotCount()})
	return j
}

func jobsOf(n int) []freeslot.Job {
	kinds := fleetKinds()
	jobs := make([]freeslot.Job, n)
	for i := range jobs {
		jobs[i] = kinds[i%len(kinds)].job(i)
	}
	return jobs
}

// TestSlots is the proof that no node is ever given more than it has: 10,000 jobs through two
// replicas, more of them at a time than there are slots, counted by those who do the work.
func TestSlots(t *testing.T) {
	checkSlots(t, newSystem(t), 10_000)
}

// checkSlots runs so many jobs of all kinds through two replicas, which are the gateways of some
// nodes.
func checkSlots(t *testing.T, s *system, jobs int) {
	t.Helper()
	const inFlight = 96
	s.serveNodes()
	replicas := s.startReplicas(2, 0)
	gate := make(chan struct{})
	services := make(map[string]*service)
	for i, n := range fleetNodes() {
		if i%2 == 0 {
			n.gateway = doors(replicas...)
		}
		services[n.id] = newService(t, gate)
		s.startAgent(n, services[n.id])
	}
	for _, r := range replicas {
		r.awaitNodes(len(services))
	}
	plan := submitPlan{URLs: []string{replicas[0].ws(), replicas[1].ws()}, Jobs: jobsOf(jobs), Concurrency: inFlight, Batch: 1}
	d := startDriver(t, "submit.mjs", plan)
	d.expect("waiting", nil)
	for _, n := range fleetNodes() {
		services[n.id].awaitUse(n.slots)
	}
	close(gate) // the whole fleet is full, and jobs wait
	var done submitDone
	d.expectDone(&done)

	done.check(t)
	if done.Waited == 0 {
		t.Error("no job waited, although more were in flight than there are slots")
	}
	checkAnswers(t, done.Answers)
	executions := make(map[int]int)
	for _, n := range fleetNodes() {
		svc := services[n.id]
		if svc.most != n.slots {
			t.Errorf("%s ran jobs of %d slots at once, it has %d", n.id, svc.most, n.slots)
		}
		for i, count := range svc.seen {
			executions[i] += count
			if done.Answers[i].Node != n.id {
				t.Errorf("job %d ran on %s, its client was told %s", i, n.id, done.Answers[i].Node)
			}
		}
		t.Logf("%s: %d jobs, at most %d of %d slots", n.id, len(svc.seen), svc.most, n.slots)
	}
	for i := range jobs {
		if executions[i] != 1 {
			t.Errorf("job %d was executed %d times", i, executions[i])
		}
	}
	t.Logf("%d jobs waited; frames %v, of them arrays %v", done.Waited, done.Frames, done.Arrays)
	for _, r := range replicas {
		eventually(t, func() error { return r.idle() })
	}
	s.checkNoSlotsInUse()
}

// checkAnswers expects one answer of each kind for each job, all ids different, and every job on a
// node that is capable of it.
func checkAnswers(t *testing.T, answers []answer) {
	t.Helper()
	kinds := fleetKinds()
	ids := make(map[string]bool, len(answers))
	byReplica := make(map[string]int)
	for i := range answers {
		a, k := &answers[i], &kinds[i%len(kinds)]
		if err := a.ok(); err != nil {
			t.Errorf("job %d (%s): %v", i, k.name, err)
			continue
		}
		if ids[a.JobID] {
			t.Errorf("job id %s was given twice", a.JobID)
		}
		ids[a.JobID] = true
		byReplica[a.Replica]++
		if !slices.Contains(k.nodes, a.Node) {
			t.Errorf("job %d (%s) went to %s, expected one of %v", i, k.name, a.Node, k.nodes)
		}
		if want := fmt.Sprintf(`{"index":%d}`, i); string(a.Result) != want {
			t.Errorf("job %d has the result %s, expected %s", i, a.Result, want)
		}
		if a.Attempt != 1 {
			t.Errorf("job %d is at attempt %d", i, a.Attempt)
		}
	}
	if len(byReplica) != 2 {
		t.Errorf("jobs were accepted by %v, expected both replicas", slices.Collect(maps.Keys(byReplica)))
	}
}

// TestMatching submits in batches what some nodes, all nodes and no node can run.
func TestMatching(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.redis.Age(t, s.prefix+":version:nodes")
	for _, n := range fleetNodes() {
		s.startAgent(n, newService(t, nil))
	}
	replicas := s.startReplicas(2, 3)
	jobs := jobsOf(160)
	refused := []struct {
		job       freeslot.Job
		code      freeslot.Code
		field     string
		breakdown map[string]int
	}{
		{job: freeslot.Job{Service: testService, Requirement: freeslot.Requirement{TargetLanguage: "sw"}}, code: freeslot.CodeNoMatchingNode, breakdown: map[string]int{"target_language": 3}},
		{job: freeslot.Job{Service: "nothing"}, code: freeslot.CodeNoMatchingNode, breakdown: map[string]int{"service": 3}},
		{job: freeslot.Job{Service: testService, Slots: 20, Requirement: freeslot.Requirement{TargetLanguage: "de"}}, code: freeslot.CodeNoMatchingNode},
		{job: freeslot.Job{Service: testService, Slots: 25}, code: freeslot.CodeNoMatchingNode, breakdown: map[string]int{"slots": 3}},
		{job: freeslot.Job{Service: "not a name"}, code: freeslot.CodeInvalidArgument, field: "jobs[4].service"},
		{job: freeslot.Job{Service: testService, Slots: -1}, code: freeslot.CodeInvalidArgument, field: "jobs[5].slots"},
	}
	// Slots 20 with German fits node-c alone, and so is no error.
	refused[2].code = ""
	for _, r := range refused {
		j := r.job
		j.Payload, _ = json.Marshal(payload{Index: len(jobs), Slots: j.SlotCount()})
		jobs = append(jobs, j)
	}
	d := startDriver(t, "submit.mjs", submitPlan{URLs: []string{replicas[0].ws(), replicas[1].ws()}, Jobs: jobs, Concurrency: 16, Batch: 8})
	var done submitDone
	d.expectDone(&done)
	done.check(t)
	checkAnswers(t, done.Answers[:160])
	for i, want := range refused {
		a := &done.Answers[160+i]
		switch {
		case want.code == "":
			if err := a.ok(); err != nil || a.Node != "node-c" {
				t.Errorf("job %+v: on %s, %v", want.job, a.Node, err)
			}
		case a.Code != want.code || a.Field != want.field:
			t.Errorf("job %+v: code %q, field %q (%s), expected %q and %q", want.job, a.Code, a.Field, a.Message, want.code, want.field)
		case !maps.Equal(a.Breakdown, want.breakdown):
			t.Errorf("job %+v: breakdown %v, expected %v", want.job, a.Breakdown, want.breakdown)
		}
	}
}
