package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/freeslot/freeslot"
)

// keyedEvery is the pause between two jobs with a key.
const keyedEvery = 60 * time.Millisecond

// submitKeyed submits jobs with idempotency keys, some of them for later or with a concurrency key,
// each to two replicas of whichever release.
func (u *upgrade) submitKeyed(submit, all context.Context, l *loader) {
	rng := mathrand.New(mathrand.NewPCG(u.seed, 5))
	for pause(submit, keyedEvery) {
		task := newTask(rng, int(u.next.Add(1)))
		task.Tenant = l.tenant
		limited := chance(rng, 30)
		if limited {
			task.TakeMS = min(task.TakeMS, 200) // others wait for it
		}
		job := task.job()
		job.IdempotencyKey = fmt.Sprintf("key-%d", task.N)
		if limited {
			n := 1 + rng.IntN(3)
			job.ConcurrencyKey, job.ConcurrencyLimit = fmt.Sprintf("at-most-%d", n), n
		}
		if chance(rng, 30) {
			job.RunAtMS = time.Now().UnixMilli() + 100 + rng.Int64N(500)
		}
		l.jobs.Go(func() { u.submitTwice(all, l, &task, &job) })
	}
}

// submitTwice submits a job until two replicas have accepted it, which must be the same job, and
// sees it to its end.
func (u *upgrade) submitTwice(all context.Context, l *loader, task *Task, job *freeslot.Job) {
	from := l.rec.Now()
	l.add(Event{N: task.N, Who: l.name}, Submitted, func(e *Event) { e.Task = task })
	body, err := json.Marshal(job)
	if err != nil {
		u.t.Errorf("a job is not JSON: %v", err)
		return
	}
	accepted := map[string]string{} // replica -> job
	for id := ""; len(accepted) < 2; {
		for _, addr := range u.addresses() {
			var answer freeslot.JobStatus
			token := cmp.Or(l.tenant, operatorToken)
			status, text, err := callAs(all, token, http.MethodPost, "http://"+addr+"/v1/jobs", body, &answer)
			switch {
			case err != nil || status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
				u.putOff(status, text, err)
			case status/100 != 2:
				u.t.Errorf("submission %d with a key was refused: %s", task.N, text)
				return
			case id != "" && answer.ID != id:
				u.t.Errorf("submission %d has a key and became job %s, and again job %s", task.N, id, answer.ID)
				return
			default:
				id, accepted[addr] = answer.ID, answer.ID
			}
		}
		if len(accepted) < 2 && !pause(all, askAgainAfter) {
			return
		}
	}
	u.keyed.Add(1)
	for _, id := range accepted {
		if h, err := l.attach(all, id); err == nil {
			l.answered(all, task, h, nil, from)
		} else if all.Err() == nil {
			u.t.Errorf("attach to %s: %v", id, err)
		}
		return
	}
}

// putOff counts a submission by HTTP that is to be sent again.
func (u *upgrade) putOff(status int, text string, err error) {
	why := "no connection"
	if err == nil {
		var refused struct{ Code string }
		_ = json.Unmarshal([]byte(text), &refused) // then it has no code
		why = fmt.Sprintf("%d %s", status, refused.Code)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.late == nil {
		u.late = map[string]int{}
	}
	u.late[why]++
}

// call makes one request of a replica as an operator, see callAs.
func call(ctx context.Context, method, url string, body []byte, out any) (status int, text string, err error) {
	return callAs(ctx, operatorToken, method, url, body, out)
}

// callAs makes one request of a replica, decodes an answer that is no error into out, and returns
// its text.
func callAs(ctx context.Context, token, method, url string, body []byte, out any) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Close = true // replicas come and go
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 || out == nil {
		return resp.StatusCode, string(data), err
	}
	return resp.StatusCode, string(data), json.Unmarshal(data, out)
}
