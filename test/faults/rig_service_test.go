package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// newService runs the nodes' jobs: a handler for each, which records when it begins and ends. The
// node is the path; job and attempt come from the agent.
func newService(t *testing.T, rec *Recorder) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(t, rec, w, r) }))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func handle(t *testing.T, rec *Recorder, w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent has gone
	}
	var task Task
	if err := json.Unmarshal(data, &task); err != nil {
		t.Errorf("the service was given %q: %v", data, err)
		return
	}
	attempt, err := strconv.Atoi(r.Header.Get("X-Freeslot-Attempt"))
	if err != nil {
		t.Errorf("the service was given the attempt %q", r.Header.Get("X-Freeslot-Attempt"))
		return
	}
	e := Event{Kind: Begun, N: task.N, Job: r.Header.Get("X-Freeslot-Job-Id"), Node: strings.TrimPrefix(r.URL.Path, "/"), Attempt: attempt}
	rec.Add(e)
	answer := Result{N: task.N, Job: e.Job, Node: e.Node, Attempt: attempt}
	if !work(w, r, &task, &answer) {
		e.Kind = Aborted
		rec.Add(e)
		return
	}
	e.Kind = Ended
	switch {
	case task.Fatal:
		e.State = freeslot.StateFailed
		rec.Add(e)
		http.Error(w, "this job fails", http.StatusInternalServerError)
	case attempt <= task.Refusals:
		e.State = freeslot.StateRetryWait
		rec.Add(e)
		http.Error(w, "not now", http.StatusServiceUnavailable)
	default:
		e.State = freeslot.StateSucceeded
		rec.Add(e)
		if task.Tells {
			_ = json.NewEncoder(w).Encode(map[string]Result{"result": answer})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the agent may have gone
	}
}

// reports is how often a handler reports progress, if it does.
const reports = 3

// work takes the task's time; false when the agent has gone before.
func work(w http.ResponseWriter, r *http.Request, task *Task, answer *Result) bool {
	takes := time.Duration(task.TakeMS) * time.Millisecond
	if task.Stalls && answer.Attempt == 1 {
		takes = forEver * time.Millisecond
	}
	if !task.Tells {
		return pause(r.Context(), takes)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for range reports {
		if !pause(r.Context(), takes/reports) {
			return false
		}
		if json.NewEncoder(w).Encode(map[string]Result{"progress": *answer}) != nil || http.NewResponseController(w).Flush() != nil {
			return false
		}
	}
	return true
}
