package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// planned is what the tests look at in a schedule.
type planned struct {
	Paused bool
	Next   []int64 `json:"next_runs_ms"`
}

const planName = "new-year"

// plan makes a schedule that runs once a year.
func (r *replica) plan() {
	r.t.Helper()
	body := `{"cron":"30 4 1 1 *","time_zone":"Asia/Kolkata","job":{"service":"hold","payload":"<b>hi</b>"}}`
	if err := r.ask(http.MethodPut, "/v1/schedules/"+planName, tokens["client"], body, nil); err != nil {
		r.t.Fatal(err)
	}
}

// paused waits until the schedule is paused, or not paused any more.
func (r *replica) paused(want bool) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("a schedule with paused %v", want), func() error {
		var s planned
		if err := r.get("/v1/schedules/"+planName, tokens["client"], &s); err != nil || s.Paused == want {
			return err
		}
		return fmt.Errorf("it is %+v", s)
	})
}

// runs waits until that many jobs run.
func (r *replica) runs(want int) {
	r.t.Helper()
	waittest.Succeeds(r.t, fmt.Sprintf("%d jobs that run", want), func() error {
		var page struct{ Jobs []struct{} }
		if err := r.get("/v1/jobs?state=running", tokens["client"], &page); err != nil || len(page.Jobs) == want {
			return err
		}
		return fmt.Errorf("%d run", len(page.Jobs))
	})
}

// unplanned waits until the schedule is gone.
func (r *replica) unplanned() {
	r.t.Helper()
	waittest.Succeeds(r.t, "the end of the schedule", func() error {
		err := r.get("/v1/schedules/"+planName, tokens["client"], nil)
		if err == nil || !strings.Contains(err.Error(), "status 404") {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
}

// TestSchedules: each action of a schedule works by the page, and by the line that its dialog
// shows.
func TestSchedules(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 4, Services: services("hold")})
	r.nodes(tokens["admin"], 1)
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/schedules")
	p.signIn(tokens["admin"])
	p.shows("There is no schedule")
	p.accessible("no schedule")
	r.plan()
	p.click("button", "Refresh")
	p.the("link", planName)
	p.accessible("schedules")
	r.shell(tokens["admin"], p.shown())
	p.click("link", planName)
	p.comingRuns(r)
	p.accessible("a schedule")
	r.shell(tokens["admin"], p.ask("Next runs"))
	r.shell(tokens["admin"], p.shown())

	line := p.confirm("Pause", "Pause schedule")
	r.paused(true)
	if got := r.change(tokens["admin"], "pause-schedule", "").Reason; got != "it's <b>late</b>" {
		t.Errorf("the audit has the reason %q; want the one that was typed", got)
	}
	p.click("button", "Undo")
	r.paused(false)
	r.shell(tokens["admin"], line)
	r.paused(true)
	p.shows("these there would be")
	line = p.confirm("Resume", "Resume schedule")
	r.paused(false)
	p.the("button", "Pause")
	r.shell(tokens["admin"], line)

	line = p.confirm("Run now", "Run schedule")
	r.runs(1)
	r.shell(tokens["admin"], line)
	r.runs(2)
	p.open(r.console() + "#/schedules/" + planName + "?tenant=" + tenant)
	p.unplan(r)
	r.twice(tokens["admin"], "pause-schedule", "resume-schedule", "run-schedule", "delete-schedule")
	p.clean(r.addr)
}

// comingRuns checks that the next run is there in its zone's time and in the time that the page
// shows.
func (p *tab) comingRuns(r *replica) {
	p.t.Helper()
	p.the("heading", "Next runs")
	var s planned
	if err := r.get("/v1/schedules/"+planName+"?runs=5", tokens["client"], &s); err != nil || len(s.Next) != 5 {
		p.t.Fatalf("the schedule has the runs %v, %v; want 5", s.Next, err)
	}
	p.click("button", "switch to UTC")
	for _, at := range s.Next {
		run := time.UnixMilli(at).UTC()
		p.shows(run.In(time.FixedZone("", 5*3600+1800)).Format(time.DateTime))
		p.shows(run.Format(time.DateTime) + " UTC")
	}
}

// unplan deletes the schedule by the page and, made again, by its line. A viewer may not.
func (p *tab) unplan(r *replica) {
	p.t.Helper()
	viewer := newBrowser(p.t).tab(narrow)
	viewer.open(r.console() + "#/schedules/" + planName + "?tenant=" + tenant)
	viewer.signIn(tokens["viewer"])
	for _, button := range []string{"Run now", "Pause", "Delete"} {
		if n := viewer.the("button", button); !strings.Contains(n.name, "Only for") {
			p.t.Errorf("a viewer's button is %q; want it to say who may", n.name)
		}
	}
	viewer.fits("a schedule")

	p.click("button", "Delete")
	p.fill("textbox", "to confirm", planName)
	p.fill("textbox", "Reason", "over")
	p.click("button", "Delete")
	p.the("heading", "Schedules")
	r.unplanned()
	r.plan()
	p.open(r.console() + "#/schedules/" + planName + "?tenant=" + tenant)
	p.click("button", "Delete")
	p.the("dialog", "Delete schedule")
	p.fill("textbox", "Reason", "over")
	r.shell(tokens["admin"], p.shown())
	r.unplanned()
}
