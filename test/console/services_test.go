package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/lock"
	"github.com/freeslot/freeslot/registry"
)

// seenFlag is what a line says of the version that the page showed.
var seenFlag = regexp.MustCompile(` --seen=\d+`)

const ordersPath = "/admin/registry/services/orders/instances"

// put registers a persistent instance of the service orders.
func (r *replica) put(id string, port int) {
	r.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"host":"10.0.0.7","port":%d,"metadata":{"zone":"<b>a</b>"}}`, id, port)
	if err := r.ask(http.MethodPost, ordersPath, tokens["admin"], body, nil); err != nil {
		r.t.Fatal(err)
	}
}

type instance struct {
	Weight   float64
	Enabled  bool
	Draining bool
	Override *struct{ Note string }
}

// instance waits until an instance of orders is as wanted.
func (r *replica) instance(id string, like func(i *instance) bool) {
	r.t.Helper()
	var got instance
	waittest.Until(r.t, "the instance "+id+" as wanted", func() bool {
		got = instance{}
		return r.get(ordersPath+"/"+id, tokens["admin"], &got) == nil && like(&got)
	}, func() any { return got })
}

// TestServices: each action of an instance works by the page, and by the line that its dialog
// shows.
func TestServices(t *testing.T) {
	long(t)
	t.Parallel()
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.signIn(tokens["admin"])
	p.press("g", "v")
	p.shows("No service is registered")
	p.accessible("no service")
	r.put("orders-1", 8080)
	f.provide("orders")
	p.the("link", "orders")
	p.accessible("services")
	if out := r.shell(tokens["admin"], p.shown()); !strings.Contains(out, "orders") {
		t.Errorf("the line of the view prints %q; want the service", out)
	}
	p.click("link", "orders")
	p.shows("heartbeat delay")
	p.shows("All get traffic.")
	p.accessible("a service")
	r.shell(tokens["admin"], p.shown())
	p.click("link", "orders-1")
	p.shows("none: an operator registered it")
	p.accessible("an instance")
	r.shell(tokens["admin"], p.shown())

	p.fill("textbox", "Weight", "2.5")
	weigh := p.confirm("Set weight", "Set weight")
	r.instance("orders-1", func(i *instance) bool { return i.Weight == 2.5 })
	if got := r.change(tokens["admin"], "override-instance", "").Reason; got != "it's <b>late</b>" {
		t.Errorf("the audit has the reason %q; want the one that was typed", got)
	}
	p.click("button", "Undo")
	r.instance("orders-1", func(i *instance) bool { return i.Weight == 1 && i.Override == nil })
	p.lacks("Set by an operator")
	r.shell(tokens["admin"], weigh)
	r.instance("orders-1", func(i *instance) bool { return i.Weight == 2.5 })
	p.shows("Set by an operator") // what the page does next goes on from there
	for _, of := range []struct {
		button string
		like   func(i *instance) bool
	}{
		{"Disable", func(i *instance) bool { return !i.Enabled && i.Weight == 2.5 }},
		{"Enable", func(i *instance) bool { return i.Enabled && !i.Draining }},
		{"Drain", func(i *instance) bool { return i.Draining && i.Weight == 2.5 && i.Override.Note == "it's <b>late</b>" }},
		{"Undrain", func(i *instance) bool { return !i.Draining }},
		{"Reset", func(i *instance) bool { return i.Override == nil && i.Weight == 1 }},
	} {
		line := p.confirm(of.button, of.button)
		r.instance("orders-1", of.like)
		if of.button == "Reset" { // by its line once more something must be set
			r.shell(tokens["admin"], seenFlag.ReplaceAllString(weigh, ""))
			r.instance("orders-1", func(i *instance) bool { return i.Weight == 2.5 })
		}
		// The line is for what was set before the page changed it.
		r.shell(tokens["admin"], seenFlag.ReplaceAllString(line, ""))
		r.instance("orders-1", of.like)
		p.pushed("instance", p.pushed("instance", p.seq("instance"))) // the page goes on from there
	}
	p.unregister(r)
	r.twice(tokens["admin"], "override-instance", "reset-instance", "remove-instance")
	p.clean(r.addr)
}

// unregister removes an instance by the page and by its line. A viewer may not, and the replica
// refuses an epoch that the instance has no longer.
func (p *tab) unregister(r *replica) {
	p.t.Helper()
	viewer := newBrowser(p.t).tab(narrow)
	viewer.open(r.console() + "#/services/orders/orders-1")
	viewer.signIn(tokens["viewer"])
	for _, button := range []string{"Set weight", "Disable", "Drain", "Reset", "Remove"} {
		if n := viewer.the("button", button); !strings.Contains(n.name, "Only for") {
			p.t.Errorf("a viewer's button is %q; want it to say who may", n.name)
		}
	}
	const header = `{"Freeslot-Console": "1"}`
	for path, method := range map[string]string{"": "DELETE", "/override": "PUT"} {
		if got := viewer.status(method, ordersPath+"/orders-1"+path, header); got != 403 {
			p.t.Errorf("a viewer's %s of an instance gets %d; want 403", method, got)
		}
	}
	viewer.fits("an instance")
	viewer.open(r.console() + "#/services/orders")
	viewer.shows("heartbeat delay")
	viewer.fits("a service")
	if got := p.status("DELETE", ordersPath+"/orders-1?epoch=gone", header); got != 409 {
		p.t.Errorf("a page that shows an old epoch gets %d; want 409", got)
	}

	p.click("button", "Remove")
	p.fill("textbox", "to confirm", "orders-1")
	p.fill("textbox", "Reason", "over")
	line := p.shown()
	p.accessible("the removal of an instance")
	p.click("button", "Remove")
	gone := func() {
		waittest.Until(p.t, "the end of the instance", func() bool {
			err := r.get(ordersPath+"/orders-1", tokens["admin"], nil)
			return err != nil && strings.Contains(err.Error(), "status 404")
		})
	}
	gone()
	r.put("orders-1", 8080)
	r.shell(tokens["admin"], line)
	gone()
}

// provide registers an instance that sends heartbeats.
func (f *fleet) provide(service string) {
	f.t.Helper()
	n, err := registry.NewNaming(registry.NamingOptions{Options: registry.Options{RedisURL: f.redis.URL()}})
	if err == nil {
		err = n.Start(waittest.Context(f.t))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = n.Stop(context.Background()) })
	if err := n.Register(waittest.Context(f.t), registry.Registration{Service: service, Host: "10.0.0.8", Port: 8081}); err != nil {
		f.t.Fatal(err)
	}
}

// TestDocuments: a document is written, compared, rolled back and deleted by the page, and a
// conflict loses no text.
func TestDocuments(t *testing.T) {
	long(t)
	t.Parallel()
	const path = "/admin/registry/config/limits"
	r := newFleet(t).replica("r1", "")
	holds := func(version int, content string) {
		t.Helper()
		var got struct {
			Version int
			Content string
		}
		waittest.Until(t, "the document as wanted", func() bool {
			return r.get(path, "", &got) == nil && got.Version == version && got.Content == content
		}, func() any { return got })
	}
	p := newBrowser(t).tab(wide)
	p.open(r.console() + "#/documents")
	p.shows("There is no document")
	p.accessible("no document")
	p.fill("textbox", "Name of a new document", "limits")
	p.click("button", "Write it")
	p.fill("textbox", "New document", "a: 1\n")
	p.confirm("Write", "Write version 1")
	holds(1, "a: 1\n")
	p.refill("Made from version 1", "a: 2\nb: <b>3</b>\n")
	if err := r.ask(http.MethodPut, path, "", `{"version":1,"content":"a: 9\n","note":"other"}`, nil); err != nil {
		t.Fatal(err)
	}
	p.click("button", "Save")
	p.the("dialog", "Write version 2")
	p.accessible("a change of a document")
	p.click("button", "Save")
	p.shows("conflict")
	p.press("\x1b")
	p.shows("was written meanwhile")
	if got := p.value("textbox", "Made from version 2"); got != "a: 2\nb: <b>3</b>\n" {
		t.Errorf("after a conflict the text is %q; want what was typed", got)
	}
	p.accessible("a conflict of a document")
	save := p.confirm("Save", "Write version 3")
	holds(3, "a: 2\nb: <b>3</b>\n")
	p.click("button", "Compare version 1")
	p.shows("From version 1 to 3")
	p.accessible("a document")
	r.shell("", p.shown())
	p.click("button", "Roll back to 2")
	p.the("dialog", "back to version 2")
	p.fill("textbox", "Reason", why)
	line := p.shown()
	p.click("button", "Roll back to 2")
	holds(4, "a: 9\n")
	r.shell("", strings.Replace(line, "--seen=3", "--seen=4", 1)) // what is the newest already makes no version
	holds(4, "a: 9\n")
	small := newBrowser(t).tab(narrow)
	small.open(r.console() + "#/documents/limits")
	small.shows("4 versions kept")
	small.fits("a document")
	r.shell("", p.file(strings.Replace(save, "--seen=2", "--seen=4", 1), "FILE", "a: 5\n"))
	holds(5, "a: 5\n")
	r.twice("", "put-config-document", "rollback-config-document")
	p.open("about:blank") // the view does not follow what others write
	p.open(r.console() + "#/documents/limits")
	p.shows("5 versions kept")
	p.click("button", "Delete")
	p.fill("textbox", "to confirm", "limits")
	p.fill("textbox", "Reason", "over")
	p.click("button", "Delete")
	p.shows("There is no document")
	p.clean(r.addr)
}

// hold takes a lock, or waits for it, until the test ends.
func (f *fleet) hold(holder, key string) (held <-chan *lock.Held) {
	f.t.Helper()
	m, err := lock.New(lock.Options{RedisURL: f.redis.URL(), Holder: holder})
	if err == nil {
		err = m.Start(waittest.Context(f.t))
	}
	if err != nil {
		f.t.Fatal(err)
	}
	l, err := m.Get(lock.Config{Key: key, Fair: true, Lease: 15 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	got, ctx := make(chan *lock.Held, 1), waittest.Context(f.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h, err := l.Lock(ctx)
		if err == nil {
			got <- h
		} else if !errors.Is(err, lock.ErrClosed) {
			f.t.Error(err)
		}
	}()
	f.t.Cleanup(func() {
		_ = m.Stop(context.Background())
		<-done
	})
	return got
}

// TestLocks: who holds a lock and who waits is on the page, and a release ends the hold that the
// page showed, and no other.
func TestLocks(t *testing.T) {
	long(t)
	t.Parallel()
	const key = "till/7 <b>x</b>"
	f := newFleet(t).withTokens()
	r := f.replica("r1", "")
	p := newBrowser(t).tab(wide)
	p.open(r.console())
	p.signIn(tokens["admin"])
	p.press("g", "k")
	p.shows("No lock is held or awaited")
	p.accessible("no lock")
	first := waittest.Receive(t, "the first hold", f.hold("first holder", key))
	next := f.hold("second holder", key)
	p.the("link", key)
	p.accessible("locks")
	if out := r.shell(tokens["admin"], p.shown()); !strings.Contains(out, "first holder") {
		t.Errorf("the line of the view prints %q; want the holder", out)
	}
	p.click("link", key)
	p.shows("second holder")
	p.accessible("a lock")
	r.shell(tokens["admin"], p.shown())

	// The dialog keeps the token that the page showed; the holder changes below it.
	p.click("button", "Force release")
	p.fill("textbox", "to confirm", key)
	p.fill("textbox", "Reason", "it hangs")
	p.accessible("a forced release")
	if err := first.Unlock(waittest.Context(t)); err != nil {
		t.Fatal(err)
	}
	second := waittest.Receive(t, "the second hold", next)
	p.shows("Nobody waits.")
	p.click("button", "Force release")
	p.shows("its holder has changed")
	p.press("\x1b")
	if err := second.Context().Err(); err != nil {
		t.Errorf("the second hold ends with %v; want it to last", err)
	}

	line := p.confirm("Ask to release", "Ask to release")
	waittest.Receive(t, "the end of the hold", second.Context().Done())
	if !strings.Contains(line, fmt.Sprintf("--if-token=%d", second.Token())) {
		t.Errorf("the line is %q; want it to have the token of the hold", line)
	}
	var audit struct{ Entries []change }
	waittest.Until(t, "both releases in the audit", func() bool {
		return r.get("/v1/audit?call=revoke-lock", tokens["admin"], &audit) == nil && len(audit.Entries) == 2 &&
			audit.Entries[0].Reason == "it's <b>late</b>" && audit.Entries[1].Reason == "it hangs"
	}, func() any { return audit })

	third := waittest.Receive(t, "the third hold", f.hold("third holder", key))
	p.shows("third holder")
	p.shows("Nobody waits.") // so it is the holder on the page
	p.click("button", "Force release")
	p.fill("textbox", "to confirm", key)
	p.fill("textbox", "Reason", "it hangs")
	p.click("button", "Force release")
	waittest.Receive(t, "the end of the third hold", third.Context().Done())
	p.shows("It is free.")
	p.open(r.console() + "#/locks")
	p.shows("forced")

	viewer := newBrowser(t).tab(narrow)
	viewer.open(r.console() + "#/locks/" + strings.ReplaceAll(key, "/", "%2F"))
	viewer.signIn(tokens["viewer"])
	viewer.shows("It is free.")
	if n := viewer.the("button", "Force release"); !strings.Contains(n.name, "Only for") {
		t.Errorf("a viewer's button is %q; want it to say who may", n.name)
	}
	if got := viewer.status("POST", "/v1/locks/till/revoke", `{"Freeslot-Console": "1"}`); got != 403 {
		t.Errorf("a viewer's release gets %d; want 403", got)
	}
	viewer.fits("a lock")
	viewer.open(r.console() + "#/locks")
	viewer.shows("forced")
	viewer.fits("locks")
	p.clean(r.addr)
}
