package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot"
)

const (
	// modernEvery is the pause between two jobs with fields that are new.
	modernEvery = 50 * time.Millisecond
	modernKeys  = 3
)

// submitModern submits jobs with fields that the previous release does not know: its replicas must refuse them, and its
// agents run them.
func (u *upgrade) submitModern(submit, all context.Context, l *loader) {
	rng := mathrand.New(mathrand.NewPCG(u.seed, 6))
	for pause(submit, modernEvery) {
		task := newTask(rng, 0)
		// Soon over, because the way back waits for them.
		task.TakeMS, task.TimeoutMS, task.CancelMS, task.Priority = min(task.TakeMS, 200), 0, 0, freeslot.MaxPriority
		job := task.job()
		key := rng.IntN(modernKeys)
		job.ConcurrencyKey, job.ConcurrencyLimit, job.ProgressTimeoutMS = "key-"+strconv.Itoa(key), 1+key, 30_000
		addresses := u.addresses()
		slices.Reverse(addresses) // that of the first replica, which is the first to be new, comes last
		for _, addr := range addresses {
			if u.submitModernAt(all, l, addr, task, job) {
				break
			}
		}
	}
}

// submitModernAt returns true when the job was accepted, or may have been.
func (u *upgrade) submitModernAt(all context.Context, l *loader, addr string, task Task, job freeslot.Job) bool {
	task.N = int(u.next.Add(1))
	job.Payload = task.job().Payload
	body, err := json.Marshal(job)
	if err != nil {
		u.t.Errorf("a job is not JSON: %v", err)
		return true
	}
	e := Event{N: task.N, Who: l.name}
	from := l.rec.Now()
	l.add(e, Submitted, func(e *Event) { e.Task = &task })
	var answer freeslot.JobStatus
	status, text, err := call(all, http.MethodPost, "http://"+addr+"/v1/jobs", body, &answer)
	switch {
	case err != nil || status >= http.StatusInternalServerError:
		l.add(e, Unknown, nil)
		return err == nil
	case status == http.StatusBadRequest:
		u.refused.Add(1)
		l.add(e, Refused, func(e *Event) { e.Note = text })
		return false
	case status/100 != 2:
		l.add(e, Refused, func(e *Event) { e.Note = text })
		return false
	}
	u.accepted.Add(1)
	e.Job, e.From = answer.ID, from
	l.add(e, Accepted, nil)
	u.open.add(answer.ID, task.N)
	u.modern.Go(func() {
		h, err := l.attach(all, answer.ID)
		if err != nil {
			l.add(e, NoAnswer, func(e *Event) { e.Note = err.Error() })
			return
		}
		l.await(all, h, e)
	})
	return true
}

// awaitGates waits until the replica of this build has put right what the previous release left behind at the gates of
// jobs.
func (u *upgrade) awaitGates(ctx context.Context) {
	var left []string
	for {
		var err error
		if left, err = u.gates(ctx); err != nil {
			u.t.Errorf("Redis cannot be read: %v", err)
			return
		}
		if len(left) == 0 {
			return
		}
		if !pause(ctx, lookInterval) {
			u.t.Errorf("what is left at gates is not put right: %v", left)
			return
		}
	}
}

// gates are those that jobs count at, or wait for.
func (u *upgrade) gates(ctx context.Context) (left []string, err error) {
	client, err := u.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	keys, err := reader{client, ctx}.keys()
	for _, key := range keys {
		if kind, id := split(key); kind == "gate" || kind == "parked" && id != "" {
			left = append(left, key)
		}
	}
	return left, err
}

// misread are what a program logs of things that it should understand, or pass over without a word.
var misread = []string{
	"cache.bad_event", "cache.foreign_node", "config.invalid", "dispatch.unreadable", "http.handler_panicked", "job.record_missing",
	"job.unreadable", "node.unreadable", "queue.unreadable", "reply.unreadable",
}

// checkLogs looks for what a program could not read that one of the other release had written.
func (u *upgrade) checkLogs() (found []Violation) {
	for _, name := range slices.Sorted(maps.Keys(u.programs)) {
		counts, err := eventsLogged(filepath.Join(u.folder, name+".log"))
		if err != nil {
			u.t.Error(err)
		}
		for _, event := range misread {
			if n := counts[event]; n > 0 {
				found = append(found, Violation{Rule: "misread", Text: fmt.Sprintf("%s logged %s %d times", name, event, n)})
			}
		}
	}
	return found
}

// eventsLogged counts the lines of a log by their events.
func eventsLogged(name string) (map[string]int, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts, lines := map[string]int{}, bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Event string `json:"event"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			counts[line.Event]++
		}
	}
	return counts, lines.Err()
}
