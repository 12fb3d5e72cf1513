package console

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// why is the reason that tests give for what they do.
const why = "it's <b>late</b>"

// act is something that the page does to a target. The first two targets are for the page and for
// the line that its dialog shows.
type act struct {
	button  string
	call    string // in the audit
	targets [2]string
	view    func(target string) string
	typed   func(target string) string // nil if nothing is to be typed
	undo    bool                       // the page offers it afterwards
	effect  func(target string) error  // nil once the target has changed
}

// press opens the dialog of the act. Where several things have the button, the one beside the
// target counts.
func (p *tab) act(c *act, target string) {
	p.t.Helper()
	p.open(p.base + c.view(target))
	ready := fmt.Sprintf(`[...document.querySelectorAll("main button")].filter((b) => b.firstChild.data === %q && !b.ariaDisabled &&
		(!b.closest("li") || b.closest("li").innerText.includes(%q)))`, c.button, target)
	waittest.Until(p.t, fmt.Sprintf("a button %s for %s", c.button, target), func() bool { return eval[int](p, ready+".length") == 1 })
	eval[bool](p, ready+"[0].click(), true")
	p.the("dialog", "")
	if c.typed != nil {
		p.fill("textbox", "to confirm", c.typed(target))
	}
	p.fill("textbox", "Reason", why)
}

// TestActions: every action works once by the page and once by the line that its dialog shows, with
// the same effect and the same entry in the audit. What can be undone is undone.
func TestActions(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.base = r.console()
	for _, c := range f.acts(r) {
		byPage, byLine := c.targets[0], c.targets[1]
		p.act(&c, byLine)
		line := p.shown()
		p.press("\x1b")
		p.gone("dialog", "")
		p.act(&c, byPage)
		for _, theme := range []string{"dark", "light"} {
			p.theme(theme)
			p.accessible(fmt.Sprintf("the %s dialog of %s", theme, c.call))
		}
		p.fits("the dialog of " + c.call)
		p.click("button", c.button)
		p.gone("dialog", "")
		r.shell("", line)
		for _, target := range c.targets {
			waittest.Succeeds(t, "the effect of "+c.call, func() error { return c.effect(target) })
			want := change{Call: c.call, Outcome: "done", Reason: why, Role: "admin"}
			got := r.change("", c.call, target)
			if got.Target = ""; got != want {
				t.Errorf("the audit has %+v for %s; want %+v", got, target, want)
			}
		}
		if c.undo {
			eval[bool](p, `document.querySelector(".toast button:not(.plain)").click(), true`)
			waittest.Until(t, "the undo of "+c.call, func() bool { return c.effect(byPage) != nil })
		}
		eval[bool](p, `document.querySelectorAll(".toast .plain").forEach((b) => b.click()), true`)
	}
	p.clean(r.addr)
}

// acts makes the targets and returns all actions on them.
func (f *fleet) acts(r *replica) []act {
	f.t.Helper()
	all := append(f.jobActs(r), append(f.nodeActs(r), f.queueActs(r)...)...)
	if !testing.Short() {
		all = append(all, append(f.listActs(r), f.houseActs(r)...)...)
	}
	return all
}

func (f *fleet) jobActs(r *replica) []act {
	f.t.Helper()
	f.node(freeslot.Node{ID: "node-jobs", MaxConcurrency: 8, Services: services("fail", "hold")})
	r.nodes("", 1)
	dead := func() string {
		id := r.submit("", `{"service":"fail"}`)
		r.state("", id, "failed")
		return id
	}
	runs := func() string {
		id := r.submit("", `{"service":"hold"}`)
		r.state("", id, "running")
		return id
	}
	view := func(id string) string { return "#/jobs/" + id }
	return []act{
		{
			button: "Cancel job", call: "cancel-job", targets: [2]string{runs(), runs()}, view: view,
			effect: func(id string) error {
				var job struct{ State string }
				if err := r.get("/v1/jobs/"+id, "", &job); err != nil || job.State == "cancelled" {
					return err
				}
				return fmt.Errorf("the job is %s", job.State)
			},
		},
		{
			button: "Requeue", call: "requeue-job", targets: [2]string{dead(), dead()}, view: view,
			effect: func(id string) error {
				var job struct {
					RequeuedAs string `json:"requeued_as"`
				}
				if err := r.get("/v1/jobs/"+id, "", &job); err != nil || job.RequeuedAs != "" {
					return err
				}
				return fmt.Errorf("the job does not name the new one")
			},
		},
		{
			button: "Drop", call: "drop-job", targets: [2]string{dead(), dead()}, view: view,
			typed:  func(id string) string { return id[len(id)-6:] },
			effect: func(id string) error { return r.gone("/v1/jobs/" + id) },
		},
	}
}

// gone returns an error as long as something is at the path.
func (r *replica) gone(path string) error {
	if err := r.get(path, "", nil); err == nil || !strings.Contains(err.Error(), "status 404") {
		return fmt.Errorf("%s is still there: %w", path, err)
	}
	return nil
}

func (f *fleet) nodeActs(r *replica) []act {
	f.t.Helper()
	for _, id := range []string{"node-1", "node-2", "node-3", "node-4"} {
		f.node(freeslot.Node{ID: id, MaxConcurrency: 1, Services: services("echo")})
	}
	imported := filepath.Join(f.t.TempDir(), "nodes.json") // nodes without an agent
	const nodes = `[{"node_id":"node-5","max_concurrency":1},{"node_id":"node-6","max_concurrency":1}]`
	if err := os.WriteFile(imported, []byte(nodes), 0o600); err != nil {
		f.t.Fatal(err)
	}
	r.shell("", "schedctl nodes import "+imported+" --redis-url "+f.redis.URL())
	r.nodes("", 7)
	for _, id := range []string{"node-3", "node-4"} {
		r.post("/v1/nodes/"+id+"/drain", "{}")
	}
	view := func(id string) string { return "#/nodes/" + id }
	status := func(want string) func(id string) error {
		return func(id string) error {
			var node struct{ Status string }
			if err := r.get("/v1/nodes/"+id, "", &node); err != nil || node.Status == want {
				return err
			}
			return fmt.Errorf("the node is %s", node.Status)
		}
	}
	return []act{
		{button: "Drain", call: "drain-node", targets: [2]string{"node-1", "node-2"}, view: view, undo: true, effect: status("drained")},
		{button: "Undrain", call: "undrain-node", targets: [2]string{"node-3", "node-4"}, view: view, undo: true, effect: status("online")},
		{
			button: "Remove", call: "remove-node", targets: [2]string{"node-5", "node-6"}, view: view,
			typed:  func(id string) string { return id },
			effect: func(id string) error { return r.gone("/v1/nodes/" + id) },
		},
	}
}

// post changes something, as everyone on this machine may.
func (r *replica) post(path, body string) {
	r.t.Helper()
	if err := r.ask(http.MethodPost, path, "", body, nil); err != nil {
		r.t.Fatal(err)
	}
}

// paused is what is paused, by kind.
type paused struct {
	Queues []struct{ Class, Service string }
	All    struct{ Pools, Services, Classes []string } `json:"all_paused"`
}

// isPaused returns an error if a pool, service or class is paused and should not be, or the other
// way round.
func (r *replica) isPaused(kind, name string, want bool) error {
	var now paused
	if err := r.get("/v1/queues", "", &now); err != nil {
		return err
	}
	all := map[string][]string{"pool": now.All.Pools, "service": now.All.Services, "class": now.All.Classes}[kind]
	if slices.Contains(all, name) == want {
		return nil
	}
	return fmt.Errorf("of the kind %s there are paused %q", kind, all)
}

func (f *fleet) queueActs(r *replica) []act {
	f.t.Helper()
	f.node(freeslot.Node{ID: "node-full", MaxConcurrency: 1, Services: services("hold", "q-1", "q-2", "q-3", "q-4")})
	r.nodes("", 8)
	const pools = `{"version":0,"config":{"enabled":true,"pools":[
		{"id":"pool-1","members":["node-1"]},{"id":"pool-2","members":["node-2"]},{"id":"pool-3"},{"id":"pool-4"}
	]}}`
	if err := r.ask(http.MethodPut, "/v1/config", "", pools, nil); err != nil {
		f.t.Fatal(err)
	}
	r.state("", r.submit("", `{"service":"hold","requirement":{"services":["q-1"]}}`), "running")
	class := map[string]string{}
	for _, name := range []string{"q-1", "q-2", "q-3", "q-4"} {
		r.submit("", fmt.Sprintf(`{"service":%q}`, name))
	}
	waittest.Until(f.t, "four queues", func() bool {
		var now paused
		if err := r.get("/v1/queues", "", &now); err != nil {
			return false
		}
		for _, q := range now.Queues {
			class[q.Service] = q.Class
		}
		return len(class) == 4
	})
	for _, path := range []string{
		"/v1/classes/" + class["q-3"], "/v1/classes/" + class["q-4"], "/v1/services/q-3", "/v1/services/q-4",
		"/v1/pools/pool-1", "/v1/pools/pool-2",
	} {
		r.post(path+"/pause", "{}")
	}
	is := func(kind string, want bool) func(name string) error {
		return func(name string) error { return r.isPaused(kind, name, want) }
	}
	ofClass := func(class string) string { return "#/queues/" + class }
	ofService := func(service string) string { return "#/queues/" + class[service] }
	return []act{
		{
			button: "Pause class", call: "pause-class", targets: [2]string{class["q-1"], class["q-2"]},
			view: ofClass, undo: true, effect: is("class", true),
		},
		{
			button: "Resume", call: "resume-class", targets: [2]string{class["q-3"], class["q-4"]},
			view: ofClass, undo: true, effect: is("class", false),
		},
		{
			button: "Pause service", call: "pause-service", targets: [2]string{"q-1", "q-2"},
			view: ofService, undo: true, effect: is("service", true),
		},
		{
			button: "Resume service", call: "resume-service", targets: [2]string{"q-3", "q-4"},
			view: ofService, undo: true, effect: is("service", false),
		},
		{
			button: "Resume", call: "resume-pool", targets: [2]string{"pool-1", "pool-2"},
			view: func(string) string { return "#/queues" }, undo: true, effect: is("pool", false),
		},
	}
}
