package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// changes returns the operations that change something at the paths of the API which the page's
// sources name, with their method and path.
func changes(t *testing.T) map[string][2]string {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	text, err := os.ReadFile(filepath.Join(root, "internal", "api", "testdata", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("[\"`](/(?:v1|admin/registry)/[^\"`?]+)")
	variable := regexp.MustCompile(`\\\$\\\{.*?\\\}`) // ${…} in a quoted template
	found := map[string][2]string{}
	err = filepath.WalkDir(filepath.Join(root, "console", "src"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(file, ".d.ts") {
			return err
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, literal := range named.FindAllStringSubmatch(string(withoutNested(source)), -1) {
			pattern := "^" + variable.ReplaceAllString(regexp.QuoteMeta(literal[1]), "[a-z]+") + "$"
			for path, methods := range document.Paths {
				if !regexp.MustCompile(pattern).MatchString(path) {
					continue
				}
				for method, operation := range methods {
					if method != "get" {
						found[operation.OperationID] = [2]string{strings.ToUpper(method), path}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"cancel-job", "drop-job", "pause-pool", "pause-schedule", "start-bulk", "put-chunk", "rollback-config-document"} {
		if found[known] == [2]string{} {
			t.Fatalf("the page's sources name the calls %v; want %s among them", found, known)
		}
	}
	return found
}

// TestEveryAction: some test does what the page's sources can ask the replica to do, and looks for
// it in the audit.
func TestEveryAction(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		if file == "role_test.go" {
			continue // it makes no call that succeeds
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	for id := range changes(t) {
		switch id {
		case "query-list", "compare-chain", "evaluate-chain", "plan-bulk": // they change nothing
		case "apply-list", "submit-job", "register-persistent": // the page only reads at their paths
		case "open-upload", "put-chunk", "commit-upload": // TestListImport and TestUploadReloaded do them
		default:
			if !strings.Contains(tests.String(), `"`+id+`"`) && !strings.Contains(tests.String(), "call="+id) {
				t.Errorf("no test looks for %s in the audit; want one that does it by the page and by its line", id)
			}
		}
	}
}

// withoutNested takes the quotes out of a template's expressions, such as
// ${on ? "pause" : "resume"}.
func withoutNested(source []byte) []byte {
	return regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAll(source, []byte("${}"))
}

// TestByRole: with the cookie of a role the replica refuses every change of the page that the table
// of rights does not grant, and no other; the page greys a button, or does not show it, for exactly
// the same roles; and jobs of another tenant are not there for roles that have a tenant.
func TestByRole(t *testing.T) {
	t.Parallel()
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	buttons, calls := f.buttons(r), changes(t)
	b := newBrowser(t)
	for role, token := range tokens {
		p := b.tab(wide)
		p.base = r.console()
		p.open(p.base)
		p.signIn(token)
		p.buttons(identity.Role(role), buttons)
		p.calls(identity.Role(role), calls)

		job := r.submit(tokens["operator"], `{"service":"fail"}`) // of tenant ops
		r.state(tokens["operator"], job, "waiting")               // its node is drained
		want := map[string]int{"viewer": 403, "client": 404, "tenant-operator": 404, "operator": 200, "admin": 200}[role]
		for _, c := range []struct{ method, path string }{
			{"POST", "/v1/jobs/" + job + "/cancel"}, {"POST", "/v1/jobs/" + job + "/requeue"}, {"DELETE", "/v1/jobs/" + job},
		} {
			got := p.status(c.method, c.path, `{"Freeslot-Console": "1"}`)
			if strings.HasSuffix(c.path, "/requeue") && want == 200 {
				continue // a cancelled job is not submitted again
			}
			if got != want && !(want == 200 && got == 204) {
				t.Errorf("%s %s of another tenant is answered %d for a %s; want %d", c.method, c.path, got, role, want)
			}
		}
		p.clean(r.addr)
	}
}

// calls makes all calls for nothing that exists, so that none has an effect.
func (p *tab) calls(role identity.Role, all map[string][2]string) {
	p.t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		p.t.Fatal(err)
	}
	codes := eval[map[string]string](p, fmt.Sprintf(`(async () => {
		const codes = {};
		for (const [id, [method, path]] of Object.entries(%s)) {
			const answer = await fetch(".." + path.replace(/\{\w+\}/g, "nothing-has-this-name"), {
				method, headers: {"Freeslot-Console": "1", "Content-Type": "application/json"}, body: method === "DELETE" ? undefined : "{}",
			});
			codes[id] = answer.ok ? "ok" : answer.status + " " + ((await answer.json()).code || "");
		}
		return codes;
	})()`, text))
	for id := range all {
		granted := role.GrantOf(id) != identity.None
		if got := codes[id]; granted == (got == "403 permission_denied") {
			p.t.Errorf("%s is answered %s for a %s; want it granted: %t", id, got, role, granted)
		}
	}
}

// button is an action's button in a view, and the operation that it is for.
type button struct {
	view, text, call string
	foreign          bool // it acts on what no tenant owns
}

// buttons waits until each button is as the role's rights say.
func (p *tab) buttons(role identity.Role, all []button) {
	p.t.Helper()
	at := ""
	for _, c := range all {
		if at != c.view {
			p.open(p.base + c.view)
			at = c.view
			eval[bool](p, "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))")
		}
		// A view that the role may not see has no buttons.
		state := fmt.Sprintf(`(() => {
			const b = [...document.querySelectorAll("main button")].find((b) => b.firstChild && b.firstChild.data === %q);
			if (b) return b.ariaDisabled ? "greyed" : "ready";
			const over = document.querySelector("main .denied, main .notice.failed, main h1") && !document.querySelector("main .loading");
			return over ? "none" : "";
		})()`, c.text)
		grant, got := role.GrantOf(c.call), ""
		granted := grant == identity.All || grant == identity.Own && !c.foreign
		waittest.Until(p.t, fmt.Sprintf("%s of %s for a %s, ready: %t", c.text, c.view, role, granted), func() bool {
			got = eval[string](p, state)
			return granted == (got == "ready") && got != ""
		}, func() any { return got })
	}
}

// buttons makes what the buttons act on, in a state in which no button is greyed for another
// reason.
func (f *fleet) buttons(r *replica) []button {
	f.t.Helper()
	admin, client := tokens["admin"], tokens["client"]
	f.node(freeslot.Node{ID: "node-1", MaxConcurrency: 1, Services: services("hold", "echo")})
	f.node(freeslot.Node{ID: "node-2", MaxConcurrency: 4, Services: services("fail")})
	r.nodes(admin, 2)
	failed := r.submit(client, `{"service":"fail"}`)
	r.state(client, failed, "failed")
	r.state(client, r.submit(client, `{"service":"hold"}`), "running")
	waits := r.submit(client, `{"service":"echo"}`)
	r.state(client, waits, "waiting")
	r.plan()
	r.shell(admin, "schedctl lists apply vip --expected 3")
	var planned struct{ ID string }
	var queues paused
	for _, c := range []struct {
		method, path, token, body string
		out                       any
	}{
		{"POST", "/v1/bulk-plans", client, `{"action":"drop","filter":{"state":"failed"}}`, &planned},
		{"PUT", "/v1/config", admin, `{"version":0,"config":{"enabled":true,"pools":[{"id":"eu","members":["node-2"]}]}}`, nil},
		{"POST", "/v1/pools/eu/pause", admin, "{}", nil},
		{"POST", "/v1/nodes/node-2/drain", admin, "{}", nil},
		{"GET", "/v1/queues", admin, "", &queues},
	} {
		if err := r.ask(c.method, c.path, c.token, c.body, c.out); err != nil {
			f.t.Fatal(err)
		}
	}
	i := slices.IndexFunc(queues.Queues, func(q struct{ Class, Service string }) bool { return q.Service == "echo" })
	if i < 0 {
		f.t.Fatalf("the queues are %+v; want one of echo", queues)
	}
	class, schedule := "#/queues/"+queues.Queues[i].Class, "#/schedules/"+planName+"?tenant="+tenant
	var long []button
	if !testing.Short() {
		long = f.houseButtons(r)
	}
	return append(long, []button{
		{view: "#/jobs/" + waits, text: "Cancel job", call: "cancel-job"},
		{view: "#/jobs/" + failed, text: "Requeue", call: "requeue-job"},
		{view: "#/jobs/" + failed, text: "Drop", call: "drop-job"},
		{view: "#/jobs?state=failed", text: "Requeue all…", call: "plan-bulk"},
		{view: "#/jobs?state=failed", text: "Drop all…", call: "plan-bulk"},
		{view: "#/bulk/" + planned.ID, text: "Start", call: "start-bulk"},
		{view: "#/nodes/node-1", text: "Drain", call: "drain-node"},
		{view: "#/nodes/node-2", text: "Undrain", call: "undrain-node"},
		{view: class, text: "Pause class", call: "pause-class"},
		{view: class, text: "Pause service", call: "pause-service"},
		{view: "#/queues", text: "Resume", call: "resume-pool"},
		{view: schedule, text: "Run now", call: "run-schedule"},
		{view: schedule, text: "Pause", call: "pause-schedule"},
		{view: schedule, text: "Delete", call: "delete-schedule"},
		{view: "#/lists/vip", text: "Freeze", call: "freeze-list"},
		{view: "#/lists/vip", text: "Delete", call: "delete-list", foreign: true},
	}...)
}

func (f *fleet) houseButtons(r *replica) []button {
	f.t.Helper()
	admin := tokens["admin"]
	waittest.Receive(f.t, "a lock", f.hold("till", "till"))
	r.put("orders-1", 8080)
	for path, body := range map[string]string{
		"/admin/registry/config/limits": `{"version":0,"content":"a: 1\n"}`,
		"/v1/chains/canary":             fmt.Sprintf(`{"version":0,"document":%s}`, canary("vip", 5)),
	} {
		if err := r.ask(http.MethodPut, path, admin, body, nil); err != nil {
			f.t.Fatal(err)
		}
	}
	return []button{
		{view: "#/locks/till", text: "Ask to release", call: "revoke-lock"},
		{view: "#/locks/till", text: "Force release", call: "revoke-lock"},
		{view: "#/services/orders/orders-1", text: "Disable", call: "override-instance"},
		{view: "#/services/orders/orders-1", text: "Remove", call: "remove-instance"},
		{view: "#/documents/limits", text: "Delete", call: "delete-config-document"},
		{view: "#/chains/canary", text: "Delete", call: "delete-chain"},
	}
}
