package cell

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// TestAlphabets: a name that could leave its place in a key, a value or an event is
// refused before Redis is asked.
func TestAlphabets(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		job := r.place("", 1, "n1")
		bad := []string{
			"", ":", "a:b", "{", "a{b}", "}", " ", "a b", "a\tb", "a\nb", "a\r\nb", "a\x00", "*", "a/b", "a~b",
			".a", "-a", "_a", "é", "ａ", "日本", "\xff", strings.Repeat("a", freeslot.MaxNameLength+1),
		}
		// What each call takes as a name, and in which call a name can be left out.
		submit := func(change func(*Submission)) error {
			s := submission("", "n1")
			change(&s)
			_, err := r.Submit(r.ctx(), s)
			return err
		}
		beat := func(change func(*Heartbeat)) error {
			hb := Heartbeat{Node: "n1", Epoch: epoch}
			change(&hb)
			_, err := r.Heartbeat(r.ctx(), hb)
			return err
		}
		complete := func(change func(*Completion)) error {
			comp := succeed("n1", epoch, job)
			change(&comp)
			_, err := r.Complete(r.ctx(), comp)
			return err
		}
		register := func(change func(*freeslot.Node)) error {
			node := testNode("n1", 2)
			change(&node)
			_, err := r.Register(r.ctx(), node, epoch)
			return err
		}
		link := func(change func(l *Link)) error {
			l := testLink(1, "t")
			change(&l)
			_, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}, l)
			return err
		}
		for name, c := range map[string]struct {
			call     func(s string) error
			optional bool
		}{
			"link node":         {func(s string) error { _, err := r.Link(r.ctx(), s); return err }, false},
			"link stream":       {func(s string) error { return link(func(l *Link) { l.Stream = s }) }, false},
			"link session":      {func(s string) error { return link(func(l *Link) { l.Session = s }) }, false},
			"link token":        {func(s string) error { return link(func(l *Link) { l.Token = s }) }, false},
			"link replica":      {func(s string) error { return link(func(l *Link) { l.Replica = s }) }, false},
			"owned spec, node":  {func(s string) error { _, _, err := r.OwnedSpec(r.ctx(), s, epoch, job); return err }, false},
			"owned spec, epoch": {func(s string) error { _, _, err := r.OwnedSpec(r.ctx(), "n1", s, job); return err }, false},
			"owned spec, job":   {func(s string) error { _, _, err := r.OwnedSpec(r.ctx(), "n1", epoch, s); return err }, false},
			"register node":     {func(s string) error { return register(func(n *freeslot.Node) { n.ID = s }) }, false},
			"register pool":     {func(s string) error { return register(func(n *freeslot.Node) { n.Pools = []string{"p", s} }) }, false},
			"register epoch":    {func(s string) error { _, err := r.Register(r.ctx(), testNode("n1", 2), s); return err }, false},
			"heartbeat node":    {func(s string) error { return beat(func(hb *Heartbeat) { hb.Node = s }) }, false},
			"heartbeat epoch":   {func(s string) error { return beat(func(hb *Heartbeat) { hb.Epoch = s }) }, false},
			"heartbeat status":  {func(s string) error { return beat(func(hb *Heartbeat) { hb.Status = freeslot.Status(s) }) }, true},
			"heartbeat job":     {func(s string) error { return beat(func(hb *Heartbeat) { hb.Running = []Attempt{{s, 1}} }) }, false},
			"heartbeat read":    {func(s string) error { return beat(func(hb *Heartbeat) { hb.Read = s }) }, true},
			"deregister node":   {func(s string) error { _, err := r.Deregister(r.ctx(), s, epoch); return err }, false},
			"deregister epoch":  {func(s string) error { _, err := r.Deregister(r.ctx(), "n1", s); return err }, false},
			"submit job":        {func(s string) error { return submit(func(x *Submission) { x.JobID = s }) }, false},
			"submit tenant":     {func(s string) error { return submit(func(x *Submission) { x.Tenant = s }) }, false},
			"submit reply to":   {func(s string) error { return submit(func(x *Submission) { x.ReplyTo = s }) }, true},
			"submit candidate":  {func(s string) error { return submit(func(x *Submission) { x.Candidates = []string{"n1", s} }) }, false},
			"complete node":     {func(s string) error { return complete(func(x *Completion) { x.Node = s }) }, false},
			"complete epoch":    {func(s string) error { return complete(func(x *Completion) { x.Epoch = s }) }, false},
			"complete job":      {func(s string) error { return complete(func(x *Completion) { x.Attempt.Job = s }) }, false},
			"complete state":    {func(s string) error { return complete(func(x *Completion) { x.State = freeslot.State(s) }) }, false},
			"cancel job":        {func(s string) error { _, err := r.Cancel(r.ctx(), "", s); return err }, false},
			"attach job":        {func(s string) error { _, err := r.Attach(r.ctx(), "", s, "r1"); return err }, false},
			"attach replica":    {func(s string) error { _, err := r.Attach(r.ctx(), "", job, s); return err }, false},
			"job":               {func(s string) error { _, err := r.Job(r.ctx(), "", s); return err }, false},
			"jobs by id":        {func(s string) error { _, err := r.JobsByID(r.ctx(), []string{job, s}); return err }, false},
			"spec":              {func(s string) error { _, _, err := r.Spec(r.ctx(), s); return err }, false},
			"dispatches":        {func(s string) error { _, err := r.Dispatches(r.ctx(), s, "", 0, 1); return err }, false},
			"open replies":      {func(s string) error { return r.OpenReplies(r.ctx(), s) }, false},
			"keep replies":      {func(s string) error { return r.KeepReplies(r.ctx(), s, "") }, false},
			"replies":           {func(s string) error { _, err := r.Replies(r.ctx(), s, "", 0, 1); return err }, false},
			"close replies":     {func(s string) error { return r.CloseReplies(r.ctx(), s) }, false},
			"cancel, in braces": {func(s string) error { _, err := r.Cancel(r.ctx(), "", "0-"+s); return err }, false},
		} {
			r.unchanged(name, func() {
				for _, s := range bad {
					if s == "" && c.optional {
						continue
					}
					if err := c.call(s); freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
						t.Errorf("%s %q: %v; want freeslot.CodeOf(err) == freeslot.CodeInvalidArgument", name, s, err)
					}
				}
			}, nil)
		}
	})
}

func TestHeartbeatRefused(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		r.unchanged("a refused heartbeat", func() {
			for _, resources := range []string{`{`, `{"a":1}{}`, `x`, `"` + strings.Repeat("x", maxResources) + `"`} {
				_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Resources: []byte(resources)})
				wantErr(t, err, freeslot.CodeInvalidArgument)
			}
			for _, read := range []string{"1", "1-", "-1", "1-x", "1-1-1", "+1-1", "$", strings.Repeat("1", 30) + "-1"} {
				_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Read: read})
				wantErr(t, err, freeslot.CodeInvalidArgument)
			}
		}, nil)
	})
}

func TestJobIDs(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 1000 {
		id := NewJobID(0)
		if err := ValidateJobID("id", id); err != nil || seen[id] {
			t.Fatalf("%s: %v, seen %v", id, err, seen[id])
		}
		seen[id] = true
		if err := freeslot.ValidateName("id", id); err != nil {
			t.Fatal(err)
		}
	}
	good := NewJobID(0)
	for _, id := range []string{
		good[:len(good)-1], good + "A", "64" + good[1:], good[2:], "0-" + strings.Repeat("I", 26), "0-" + strings.Repeat("Z", 26),
		"0-01JD5Y8G6W9V0M5T2C3Q4R7X8:", "0--01JD5Y8G6W9V0M5T2C3Q4R7X8Z", "00-" + good[2:], " " + good, good + "\n",
	} {
		err := ValidateJobID("the_field", id)
		if freeslot.CodeOf(err) != freeslot.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "the_field") {
			t.Errorf(`%q: %v; want freeslot.CodeOf(err) == freeslot.CodeInvalidArgument, strings.Contains(fmt.Sprint(err), "the_field")`, id, err)
		}
	}
	if err := freeslot.ValidateName("epoch", NewEpoch()); err != nil {
		t.Error(err)
	}
}

// TestKeyNames: other programs may read the keys, and another release must find them. Each builder
// of Layout names one; ID1 and ID2 stand for what it takes.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	for _, of := range []struct {
		what   string
		layout Layout
	}{
		{"one cell on a server", Layouts("scheduler", 1, false)[0]},
		{"one cell on a cluster", Layouts("scheduler", 1, true)[0]},
		{"the third of three cells on servers", Layouts("fleet", 3, false)[2]},
		{"the third of three cells on a cluster", Layouts("fleet", 3, true)[2]},
	} {
		var names []string
		layout := reflect.ValueOf(of.layout)
		for i := range layout.NumMethod() {
			build := layout.Method(i)
			args := []reflect.Value{reflect.ValueOf("ID1"), reflect.ValueOf("ID2")}[:build.Type().NumIn()]
			if out := build.Call(args); len(out) == 1 && layout.Type().Method(i).Name != "String" {
				names = append(names, out[0].String())
			}
		}
		slices.Sort(names)
		fmt.Fprintf(&out, "# %s, sharded events: %v\n%s\n\n", of.what, of.layout.Sharded, strings.Join(names, "\n"))
	}
	golden.Check(t, "keys.txt", out.String())
}
