package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

var alice = &identity.Principal{Name: "alice", Role: identity.Operator, Tenant: "acme"}

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

func TestAccess(t *testing.T) {
	t.Parallel()
	scripttest.CheckAccess(t, Access)
}

func TestKeyNames(t *testing.T) {
	t.Parallel()
	scripttest.CheckKeys(t, keysOf)
}

// read returns all entries that match, page by page.
func read(t *testing.T, l *Log, f Filter, limit int) (all []Entry) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := l.Read(t.Context(), f, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, page...); next == "" {
			return all
		}
		cursor = next
	}
}

func calls(entries []Entry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Call+" "+e.Outcome)
	}
	return all
}

// An entry is there before the change, and complete after it.
func TestChange(t *testing.T) {
	scripttest.Backends(t, func(t *testing.T, r *scripttest.Rig) {
		core, lines := observer.New(zap.InfoLevel)
		l := New(Config{Replica: "r1"}, r.Runner, zap.New(core), nil)
		c, err := l.Begin(t.Context(), alice, "drain-node", "/v1/nodes/n1/drain", "10.0.0.7", "a new disk")
		if err != nil || c.Lost != nil {
			t.Fatalf("begin: lost %v, error %v; expected it recorded", c.Lost, err)
		}
		want := Entry{
			ID: c.ID(), Call: "drain-node", Target: "/v1/nodes/n1/drain", Name: "alice", Role: "operator", Tenant: "acme",
			Address: "10.0.0.7", Replica: "r1", Reason: "a new disk", Outcome: OutcomeUnderWay,
		}
		times := cmpopts.IgnoreFields(Entry{}, "AtMS", "TookMS", "EndedMS")
		if diff := cmp.Diff([]Entry{want}, read(t, l, Filter{}, 10), times); diff != "" {
			t.Errorf("during the change: -want +got\n%s", diff)
		}
		c.Note("online", "draining")
		c.Because("this comes too late")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a client that has gone leaves an entry all the same
		c.End(ctx, OutcomeDone)
		want.Before, want.After, want.Outcome = "online", "draining", OutcomeDone
		if diff := cmp.Diff([]Entry{want}, read(t, l, Filter{}, 10), times); diff != "" {
			t.Errorf("after the change: -want +got\n%s", diff)
		}
		if r.Exists(l.store.keys.operators.open) {
			t.Error("a change that has ended counts as open")
		}
		logged := lines.FilterMessage("audit.change").All()
		if len(logged) != 1 || logged[0].ContextMap()["reason"] != "a new disk" ||
			logged[0].ContextMap()["after"] != "draining" {
			t.Errorf("logged %+v, expected one line with the whole entry", logged)
		}
	})
}

// A dry run is no change that was made. One that is refused has the code, as any other.
func TestDryRun(t *testing.T) {
	t.Parallel()
	l := New(Config{}, scripttest.NewRig(t, redistest.Shared(t)).Runner, zap.NewNop(), nil)
	for _, outcome := range []string{OutcomeDone, "conflict"} {
		c, err := l.Begin(t.Context(), alice, "put-config", "/v1/config", "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.DryRun()
		c.End(t.Context(), outcome)
	}
	got := read(t, l, Filter{}, 10)
	if len(got) != 2 || got[0].Outcome != "conflict" || got[1].Outcome != OutcomeDryRun || got[1].After != "nothing changed" {
		t.Errorf("the audit has %+v; want a conflict, and before it a dry run that changed nothing", got)
	}
	(*Change)(nil).DryRun() // it stands for what is not audited
}

// A replica that dies between the entry and the end leaves an entry without an outcome. Many such
// entries are moved to the stream, so that they do not pile up.
func TestChangesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{}, r.Runner, zap.NewNop(), nil)
	const dead = 300
	old := time.Now().Add(-2 * oldAfter).UnixMilli()
	for i := range dead {
		id := fmt.Sprintf("%026d", i)
		r.Do(
			"HSET", l.store.keys.operators.open, id, fmt.Sprintf(`%d {"id":%q,"at_ms":%d,"call":"drain-node"}`, old, id, old),
		)
	}
	for i, e := range read(t, l, Filter{}, 500) {
		if e.Outcome != OutcomeUnknown {
			t.Fatalf("entry %d has the outcome %q, expected %q", i, e.Outcome, OutcomeUnknown)
		}
	}
	for range 10 {
		c, err := l.Begin(t.Context(), alice, "put-config", "/v1/config", "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.End(t.Context(), "conflict")
	}
	if open := r.Int("HLEN", l.store.keys.operators.open); open > 256 {
		t.Errorf("%d changes are open, expected at most 256", open)
	}
	if got := len(read(t, l, Filter{Outcome: OutcomeUnknown}, 500)); got != dead {
		t.Errorf("%d changes have an unknown outcome, expected %d", got, dead)
	}
	if got := len(read(t, l, Filter{Call: "put-config", Outcome: "conflict"}, 500)); got != 10 {
		t.Errorf("%d changes ended in a conflict, expected 10", got)
	}
}

func TestFilterAndPages(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{}, r.Runner, zap.NewNop(), nil)
	bob := &identity.Principal{Name: "bob", Role: identity.Admin, Tenant: "ops"}
	for i := range 25 {
		who := alice
		if i%5 == 0 {
			who = bob
		}
		c, err := l.Begin(t.Context(), who, fmt.Sprint("call-", i), fmt.Sprint("/v1/nodes/n", i), "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.End(t.Context(), OutcomeDone)
	}
	all := read(t, l, Filter{}, 7)
	if len(all) != 25 || all[0].Call != "call-24" || all[24].Call != "call-0" {
		t.Errorf("all pages have %v, expected 25 entries, the newest first", calls(all))
	}
	want := []string{"call-20 done", "call-15 done", "call-10 done", "call-5 done", "call-0 done"}
	for name, f := range map[string]Filter{"name": {Name: "bob"}, "role": {Role: "admin"}, "tenant": {Tenant: "ops"}} {
		if diff := cmp.Diff(want, calls(read(t, l, f, 2))); diff != "" {
			t.Errorf("by %s: -want +got\n%s", name, diff)
		}
	}
	if got := calls(read(t, l, Filter{Target: "/nodes/n17"}, 2)); !cmp.Equal(got, []string{"call-17 done"}) {
		t.Errorf("by target: %v, expected call-17 alone", got)
	}
	if got := read(t, l, Filter{UntilMS: all[24].AtMS}, 2); len(got) != 0 {
		t.Errorf("before the first: %v, expected none", calls(got))
	}
	_, _, err := l.Read(t.Context(), Filter{}, "yesterday", 1)
	if freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
		t.Errorf("a bad cursor gives %v, expected invalid_argument", err)
	}
}

// Tenants push out tenants' entries, and never an operator's, whether they end or not.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{Entries: 100}, r.Runner, zap.NewNop(), nil)
	for range 10 {
		c, err := l.Begin(t.Context(), alice, "drain-node", "/v1/nodes/n1/drain", "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.End(t.Context(), OutcomeDone)
	}
	for i := range 600 {
		role := []identity.Role{identity.Client, identity.TenantOperator}[i%2]
		c, err := l.Begin(
			t.Context(), &identity.Principal{Tenant: "acme", Role: role}, "put-schedule", "/v1/schedules/s", "", "",
		)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 { // of the others the replica died
			c.End(t.Context(), OutcomeDone)
		}
	}
	if got := len(read(t, l, Filter{Role: "operator"}, 500)); got != 10 {
		t.Errorf("%d entries of the operator are left; want all 10", got)
	}
	if got := len(read(t, l, Filter{Call: "put-schedule", Outcome: OutcomeDone}, 500)); got < 100 || got > 300 {
		t.Errorf("%d entries of tenants are left; want about 100", got)
	}
	if open := r.Int("HLEN", l.store.keys.operators.open); open != 0 {
		t.Errorf("%d changes of tenants are open among the operators'; want 0", open)
	}
}

// Pages of any size show the entries of both streams once, in the order in which they ended.
func TestMergedPages(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{}, r.Runner, zap.NewNop(), nil)
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []string
	for ms := 1; ms <= 300; ms++ {
		for seq := range 2 {
			for _, key := range []string{l.store.keys.tenants.ended, l.store.keys.operators.ended} { // at times both
				if rnd.IntN(3) == 0 {
					continue
				}
				id := fmt.Sprintf("%s %d-%d", key, ms, seq)
				r.Do("XADD", key, fmt.Sprintf("%d-%d", ms, seq), "entry", fmt.Sprintf(`{"id":%q,"at_ms":%d}`, id, ms))
				want = append(want, id)
			}
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 7, 500} {
		var got []string
		for _, e := range read(t, l, Filter{}, limit) {
			got = append(got, e.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d: -want +got\n%s", limit, diff)
		}
	}
}

// A filter by time ends the search where older entries begin.
func TestSinceEndsTheSearch(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{}, r.Runner, zap.NewNop(), nil)
	now := time.Now()
	for i, at := range []time.Time{now.Add(-time.Hour), now} {
		r.Do("XADD", l.store.keys.operators.ended, fmt.Sprint(at.UnixMilli(), "-", i), "entry",
			fmt.Sprintf(`{"id":"%d","at_ms":%d}`, i, at.UnixMilli()))
	}
	page, next, err := l.Read(t.Context(), Filter{SinceMS: now.Add(-time.Minute).UnixMilli()}, "", 10)
	if err != nil || len(page) != 1 || page[0].ID != "1" || next != "" {
		t.Errorf("entries %+v, cursor %q, error %v; want entry 1 alone, and no cursor", page, next, err)
	}
}

// The stream is capped, and its texts are short.
func TestBounds(t *testing.T) {
	t.Parallel()
	r := scripttest.NewRig(t, redistest.Shared(t))
	l := New(Config{Entries: 100}, r.Runner, zap.NewNop(), nil)
	for range 400 {
		c, err := l.Begin(t.Context(), alice, "edit-list", strings.Repeat("ä", maxText), "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.Note(strings.Repeat("b", 1<<20), "")
		c.End(t.Context(), OutcomeDone)
	}
	entries := read(t, l, Filter{}, 500)
	if len(entries) < 100 || len(entries) > 300 {
		t.Errorf("%d entries are kept, expected about 100", len(entries))
	}
	if e := entries[0]; len(e.Target) > maxText || len(e.Before) > maxText {
		t.Errorf("texts of %d and %d bytes, expected at most %d", len(e.Target), len(e.Before), maxText)
	}
}

// While Redis is away a change goes on, and the log has the whole entry, unless the audit is
// required.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := scripttest.NewRig(t, server.Target, func(c *script.Config) { c.CallTimeout = 200 * time.Millisecond })
	core, lines := observer.New(zap.InfoLevel)
	l := New(Config{}, r.Runner, zap.New(core), nil)
	required := New(Config{Required: true}, r.Runner, zap.NewNop(), nil)
	server.Kill()
	c, err := l.Begin(t.Context(), alice, "drain-node", "/v1/nodes/n1/drain", "", "a new disk")
	if err != nil || c.Lost == nil {
		t.Fatalf("begin: lost %v, error %v; expected it lost, and no error", c.Lost, err)
	}
	c.End(t.Context(), OutcomeDone)
	logged := lines.FilterMessage("audit.change").All()
	if len(logged) != 1 || logged[0].ContextMap()["audit"] != "lost" || logged[0].ContextMap()["reason"] != "a new disk" {
		t.Errorf("logged %+v, expected one line with the whole entry, as lost", logged)
	}
	if got := testutil.ToFloat64(l.entries.WithLabelValues("lost")); got != 1 {
		t.Errorf("%v changes count as lost, expected 1", got)
	}
	if _, err := required.Begin(
		t.Context(), alice, "drain-node", "", "", "",
	); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Errorf("a required audit gives %v, expected unavailable", err)
	}
}

func TestCheckReason(t *testing.T) {
	t.Parallel()
	for reason, good := range map[string]bool{
		"": true, "größere Platte": true, strings.Repeat("x", maxReason): true,
		strings.Repeat("x", maxReason+1): false, "two\nlines": false, "\xff": false,
	} {
		if err := CheckReason("Freeslot-Reason", reason); (err == nil) != good {
			t.Errorf("%q gives %v, expected accepted: %t", reason, err, good)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("1700000000000-0")
	f.Add("1700000000000-18446744073709551615-own")
	f.Add("-own")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decodeCursor(text)
		if again, errAgain := decodeCursor(p.String()); err == nil && !p.start && (errAgain != nil || again != p) {
			t.Errorf("%q gives %+v, and %q gives %+v, %v; want the same", text, p, p.String(), again, errAgain)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"id":"a","outcome":"done"}`)
	f.Add(`{"id":7}`)
	f.Add(`12 {`)
	f.Fuzz(func(t *testing.T, text string) {
		if e, ok := decode(text); ok && (e.ID == "" || e.Outcome == "") {
			t.Errorf("%q gives %+v, expected an id and an outcome", text, e)
		}
	})
}
