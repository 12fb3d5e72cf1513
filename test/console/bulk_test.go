package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// operation is what the tests look at in a bulk operation.
type operation struct {
	ID, State, Owner string
	Count, Done      int
	Outcomes         map[string]int
}

// operation waits until the bulk operation is as it should be.
func (r *replica) operation(id, what string, is func(o operation) bool) (o operation) {
	r.t.Helper()
	waittest.Until(r.t, what, func() bool {
		return r.get("/v1/bulk/"+id, "", &o) == nil && is(o)
	}, func() any { return o.Done })
	return o
}

// began returns the entry of the audit about the start of a bulk operation.
func (r *replica) began(id string) (found []string) {
	r.t.Helper()
	var page struct {
		Entries []struct{ After, Reason, Outcome string }
	}
	if err := r.get("/v1/audit?call=start-bulk", "", &page); err != nil {
		r.t.Fatal(err)
	}
	for _, e := range page.Entries {
		if strings.HasSuffix(e.After, " by operation "+id) {
			found = append(found, e.Outcome+": "+e.Reason)
		}
	}
	return found
}

// last is the dialog on top.
const last = `[...document.querySelectorAll("dialog[open]")].at(-1)`

// dryRun plans an operation on what the view's filter finds, opens the dialog that starts it, and
// returns its id and count.
func (p *tab) dryRun(button string) (id, count string) {
	p.t.Helper()
	p.click("button", button)
	p.shows("fixed now")
	p.accessible("the dry run of " + button)
	p.click("button", "Start")
	p.the("textbox", "Reason")
	p.accessible("the start of " + button)
	line := strings.Fields(p.line(last + `.querySelector(".command code")`))
	return line[len(line)-1], strings.TrimPrefix(line[3], "--count=")
}

// TestBulk: an operation on all jobs of a filter does once to each what its dialog says, by the
// page and by the line of its dialog. It leaves out jobs that came after the dry run and jobs that
// someone else has changed. A wrong count starts nothing, and a double click one operation.
func TestBulk(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 4, Services: services("break", "fail")})
	f.node(freeslot.Node{ID: "node-2", MaxConcurrency: 1, Services: services("hold")})
	r.nodes("", 2)
	r.state("", r.submit("", `{"service":"hold"}`), "running")
	job := func(state, body string) func() string {
		return func() string {
			id := r.submit("", body)
			r.state("", id, state)
			return id
		}
	}
	p := newBrowser(t).tab(wide)
	p.base = r.console()
	for _, c := range []struct {
		button, view string
		make         func() string
		effect       func(id string) error
		missing      int // targets that it cannot change, because someone else has
	}{
		{"Requeue all", "#/dead", job("dead", `{"service":"break","max_attempts":1}`), r.requeued, 1},
		{"Drop all", "#/jobs?state=failed", job("failed", `{"service":"fail"}`), func(id string) error { return r.gone("/v1/jobs/" + id) }, 0},
		{"Cancel all", "#/jobs?state=waiting", job("waiting", `{"service":"hold"}`), func(id string) error { return r.is(id, "cancelled") }, 0},
	} {
		for _, byLine := range []bool{true, false} {
			first, second, other := c.make(), c.make(), c.make()
			p.open(p.base + c.view)
			if c.view == "#/dead" { // its groups lead to their jobs
				p.click("button", "Refresh")
				p.row("break")
				p.press("\r")
				p.the("heading", "Jobs")
			}
			id, count := p.dryRun(c.button)
			late := c.make()
			if err := r.ask(http.MethodDelete, "/v1/jobs/"+other, "", "", nil); err != nil {
				r.post("/v1/jobs/"+other+"/cancel", "") // it has not ended
			}
			p.fill("textbox", "Reason", why)
			line := p.line(last + `.querySelector(".command code")`)
			if byLine {
				r.shell("", line)
				p.press("\x1b")
				p.press("\x1b")
				p.gone("dialog", "")
			} else {
				p.wrongCount(r, id, count)
				p.fill("textbox", "to confirm", count)
				on[bool](p, p.the("button", "Start"), `function() { this.click(); this.click(); return true; }`)
				p.shows("Progress")
				p.gone("dialog", "")
			}
			n, _ := strconv.Atoi(count)
			o := r.operation(id, "the end of "+c.button, func(o operation) bool { return o.State == "ended" })
			if o.Count != n || o.Done != n || o.Outcomes["done"] != n-c.missing {
				t.Errorf("%s ends as %+v; want %d jobs, of which %d are missing", c.button, o, n, c.missing)
			}
			for _, id := range []string{first, second} {
				waittest.Succeeds(t, "the effect of "+c.button, func() error { return c.effect(id) })
			}
			if c.effect(late) == nil {
				t.Errorf("%s changes a job that came after the dry run; want it left out", c.button)
			}
			if got := r.began(id); !slices.Equal(got, []string{"done: " + why}) {
				t.Errorf("the audit has the starts %q of %s; want one with the reason", got, id)
			}
		}
	}
	p.clean(r.addr)
}

// requeued returns an error unless the job was submitted again.
func (r *replica) requeued(id string) error {
	var job struct {
		As string `json:"requeued_as"`
	}
	if err := r.get("/v1/jobs/"+id, "", &job); err != nil || job.As != "" {
		return err
	}
	return fmt.Errorf("job %s was not submitted again", id)
}

// is returns an error unless the job has the state.
func (r *replica) is(id, state string) error {
	var job struct{ State string }
	if err := r.get("/v1/jobs/"+id, "", &job); err != nil || job.State == state {
		return err
	}
	return fmt.Errorf("job %s is %s", id, job.State)
}

// wrongCount shows that another count than the dry run's starts nothing: the page greys the button,
// and the replica refuses the call.
func (p *tab) wrongCount(r *replica, id, count string) {
	p.t.Helper()
	p.fill("textbox", "to confirm", count+"0")
	if !on[bool](p, p.the("button", "Start"), `function() { return this.disabled; }`) {
		p.t.Error("a wrong count is accepted; want a greyed button")
	}
	body := fmt.Sprintf(`{"plan":%q,"count":%s0}`, id, count)
	if err := r.ask(http.MethodPost, "/v1/bulk", "", body, nil); err == nil || !strings.Contains(err.Error(), "count") {
		p.t.Errorf("a start with a wrong count is answered %v; want it refused for its count", err)
	}
	if o := r.operation(id, "the operation", func(operation) bool { return true }); o.State != "planned" {
		p.t.Errorf("after wrong counts the operation is %s; want planned", o.State)
	}
	on[bool](p, p.the("textbox", "to confirm"), `function() { this.value = ""; this.dispatchEvent(new Event("input", {bubbles: true})); return true; }`)
}

// many submits that many jobs, over few connections.
func (r *replica) many(n int, body string) {
	r.t.Helper()
	const connections = 8
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	var tasks sync.WaitGroup
	for c := range connections {
		tasks.Go(func() {
			for range (n - c + connections - 1) / connections {
				answer, err := client.Post("http://"+r.addr+"/v1/jobs", "application/json", strings.NewReader(body))
				if err != nil {
					r.t.Error(err)
					return
				}
				_ = answer.Body.Close()
				if answer.StatusCode > http.StatusAccepted {
					r.t.Errorf("a job is answered %s; want 200 or 202", answer.Status)
					return
				}
			}
		})
	}
	tasks.Wait()
}

// failed returns how many jobs failed, and how many of them each job was submitted again as.
func (r *replica) failed() (n int, again map[string]int) {
	r.t.Helper()
	again = map[string]int{}
	for cursor := ""; ; {
		var page struct {
			Jobs []struct {
				As string `json:"requeued_as"`
			}
			Cursor string
		}
		if err := r.get("/v1/jobs?state=failed&limit=500&cursor="+cursor, "", &page); err != nil {
			r.t.Fatal(err)
		}
		for _, j := range page.Jobs {
			if n++; j.As != "" {
				again[j.As]++
			}
		}
		if cursor = page.Cursor; cursor == "" {
			return n, again
		}
	}
}

// TestBulkSurvives: an operation on 5,000 jobs, started by the page, goes on when its replica is
// killed, submits each job again once, and is followed by the page all the way. Another one is
// stopped, by the page and by its line.
func TestBulkSurvives(t *testing.T) {
	long(t)
	t.Parallel()
	const jobs = 5000
	f := newIdleFleet(t) // 25 s at 200 jobs a second
	f.configuration = map[string]any{"dead_limit": 3 * jobs}
	r1, r2 := f.replica("r1", ""), f.replica("r2", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 64, Services: services("fail")})
	r1.nodes("", 1)
	r1.many(jobs, `{"service":"fail"}`)
	count := 0
	waittest.Until(t, "all jobs to fail", func() bool {
		count, _ = r2.failed()
		return count == jobs
	}, func() any { return count })

	b := newBalancer(t, "", r1, r2)
	p := newBrowser(t).tab(wide)
	p.open(b.console() + "#/jobs?state=failed")
	p.the("navigation", "Views")
	eval[bool](p, "window.same = true")
	id, n := p.dryRun("Requeue all")
	if n != strconv.Itoa(jobs) {
		t.Fatalf("the dry run counts %s; want %d", n, jobs)
	}
	p.fill("textbox", "to confirm", n)
	p.fill("textbox", "Reason", why)
	p.click("button", "Start")
	p.the("heading", "requeue")
	o := r2.operation(id, "the first targets", func(o operation) bool { return o.Done > 0 })
	if r1.kill(); o.Done == jobs {
		t.Fatal("the operation ended before the kill")
	}
	o = r2.operation(id, "the end of the operation", func(o operation) bool { return o.State == "ended" })
	if o.Done != jobs || o.Outcomes["done"] != jobs {
		t.Errorf("the operation ends as %+v; want %d done", o, jobs)
	}
	p.shows("5\u202f000 of 5\u202f000")
	p.the("heading", "ended")
	var again map[string]int
	waittest.Until(t, "all new jobs to fail", func() bool {
		count, again = r2.failed()
		return count >= 2*jobs
	}, func() any { return count })
	if count != 2*jobs || len(again) != jobs {
		t.Errorf("%d jobs failed, and %d are others again; want %d and %d", count, len(again), 2*jobs, jobs)
	}
	p.stops(r2)
	if !eval[bool](p, "window.same === true") {
		t.Error("the page was loaded anew; want the same")
	}
	p.clean(strings.TrimPrefix(b.server.URL, "http://"))
}

// stops begins to drop jobs, and stops by the page and by its line.
func (p *tab) stops(r *replica) {
	p.t.Helper()
	stopped := func(id string) {
		o := r.operation(id, "the stop", func(o operation) bool { return o.State == "stopped" })
		if o.Done == o.Count {
			p.t.Errorf("the operation ends as %+v; want it stopped before", o)
		}
	}
	var line, first string
	for _, byLine := range []bool{false, true} {
		p.open(eval[string](p, `location.href.split("#")[0]`) + "#/jobs?state=failed")
		p.the("heading", "Jobs")
		id, n := p.dryRun("Drop all")
		p.fill("textbox", "to confirm", n)
		p.fill("textbox", "Reason", why)
		p.click("button", "Start")
		p.the("heading", "drop")
		if byLine {
			r.shell("", strings.ReplaceAll(line, first, id))
			stopped(id)
			continue
		}
		p.click("button", "Stop")
		p.fill("textbox", "Reason", why)
		line, first = p.shown(), id
		p.click("button", "Stop")
		p.gone("dialog", "")
		stopped(id)
		r.change("", "stop-bulk", id)
	}
}
