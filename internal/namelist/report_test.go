package namelist

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

var (
	acme  = Owner{Tenant: "acme", Name: "web"}
	other = Owner{Tenant: "other"}
)

func (r *rig) relay(owner Owner, client string, report ClientReport, lists ...string) (refused []string) {
	r.t.Helper()
	all := make(map[string]ClientReport)
	for _, list := range lists {
		all[list] = report
	}
	refused = ok[[]string](r.t)(r.Relay(bounded(r.t), owner, client, all))
	slices.Sort(refused)
	return refused
}

// live returns the live clients as "owner client version".
func (r *rig) live(list string) (out []string) {
	r.t.Helper()
	live, _, err := r.Clients(bounded(r.t), list)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range live {
		out = append(out, fmt.Sprintf("%s %s %d", c.Owner, c.ID, c.Serves))
	}
	return out
}

// wantReaders wants the readers of a list, and that their number by tenant is right.
func (r *rig) wantReaders(list string, want ...string) {
	r.t.Helper()
	if got := r.live(list); !slices.Equal(got, want) {
		r.t.Errorf("clients of list %s: %q; want %q", list, got, want)
	}
	is, counts := make(map[string]string), r.hash(r.k.readerCounts(list))
	n := make(map[string]int)
	for reader := range r.hash(r.k.readers(list)) {
		tenant, _, _ := strings.Cut(strings.Fields(reader)[0], "/")
		n[tenant]++
		is[tenant] = strconv.Itoa(n[tenant])
	}
	delete(counts, "")
	if !maps.Equal(counts, is) {
		r.t.Errorf("readers of list %s by tenant: %v; want %v", list, counts, is)
	}
}

// TestOwnersOfReports: clients of two tokens may have one name; neither changes the other's report.
func TestOwnersOfReports(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		h := r.active("vip")
		report := func(serves int64) ClientReport { return ClientReport{Birth: h.Birth, Serves: serves} }
		r.relay(acme, "c", report(1), "vip", "none")
		r.relay(other, "c", report(2), "vip")
		if err := r.Report(bounded(t), "c", map[string]ClientReport{"vip": report(3)}); err != nil {
			t.Fatal(err)
		}
		r.wantReaders("vip", "(redis) c 3", "acme/web c 1", "other c 2")
		r.relay(other, "c", report(4), "vip")
		r.relay(Owner{Tenant: "acme", Name: "batch"}, "c", ClientReport{}, "vip")
		r.wantReaders("vip", "(redis) c 3", "acme/web c 1", "other c 4")
		r.relay(other, "c", ClientReport{}, "vip")
		r.relay(other, "c", ClientReport{}, "vip")
		r.wantReaders("vip", "(redis) c 3", "acme/web c 1")
		r.wantReaders("none")
		r.pass("vip", 61*time.Second)
		r.wantReaders("vip")
	})
}

// TestReadersOfATenant: a tenant with enough clients gets no more, until one of them is silent.
// Other tenants do not notice.
func TestReadersOfATenant(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	h := r.active("vip")
	r.active("small")
	report := ClientReport{Birth: h.Birth, Serves: 1}
	set := []string{"HSET", r.k.readers("vip")}
	for i := range ReportClients {
		set = append(set, fmt.Sprintf("acme/web c%d", i), number(time.Now().UnixMilli())+` {"serves":1}`)
	}
	r.do(set...)
	r.do("HSET", r.k.readerCounts("vip"), "acme", strconv.Itoa(ReportClients))
	if got := r.relay(acme, "new", report, "small", "vip"); !slices.Equal(got, []string{"vip"}) {
		t.Errorf("refused on %q; want on vip alone", got)
	}
	if got := r.relay(other, "new", report, "vip"); got != nil {
		t.Errorf("another tenant is refused on %q; want no refusal", got)
	}
	if got := r.relay(acme, "c7", report, "vip"); got != nil {
		t.Errorf("a known client is refused on %q; want no refusal", got)
	}
	r.do("HSET", r.k.readers("vip"), "acme/web c3", "1 {}")
	if got := r.relay(acme, "new", report, "vip"); len(got) != 1 {
		t.Errorf("refused on %q so soon after the last look for silent ones; want on vip", got)
	}
	r.do("HSET", r.k.readerCounts("vip"), "", "1")
	if got := r.relay(acme, "new", report, "vip"); got != nil {
		t.Errorf("with a silent client refused on %q; want no refusal", got)
	}
	if all := r.hash(r.k.readers("vip")); len(all) != ReportClients+1 || all["acme/web c3"] != "" {
		t.Errorf("%d readers, c3 is %q; want %d without c3", len(all), all["acme/web c3"], ReportClients+1)
	}
}

// TestLacking: a switch waits for live clients with the serving version and without the next one.
func TestLacking(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.active("vip")
		next := r.build("vip", OpImport)
		op := r.begin("vip", OpSwitch, next)
		h := ok[Head](t)(r.Prepare(bounded(t), "vip", op))
		want := func(what string, direct, relayed int64) {
			t.Helper()
			if got := ok[Lacking](t)(r.Lacking(bounded(t), &h)); got != (Lacking{direct, relayed}) {
				t.Errorf("%s: %+v; want %d and %d", what, got, direct, relayed)
			}
		}
		serving := h.Serving.Number
		for what, report := range map[string]ClientReport{
			"another life":                 {Birth: "other", Serves: serving, Loaded: []int64{serving}},
			"without the serving version":  {Birth: h.Birth, Serves: serving},
			"ready":                        {Birth: h.Birth, Serves: serving, Loaded: []int64{serving, next}},
			"serves the next":              {Birth: h.Birth, Serves: next, Loaded: []int64{serving}},
			"says in a text that it lacks": {Birth: h.Birth, SDK: `"serves":1,"loaded":[1]`},
		} {
			r.relay(acme, "c", report, "vip")
			want(what, 0, 0)
		}
		lacks := ClientReport{Birth: h.Birth, Serves: serving, Loaded: []int64{serving, 11, 111}}
		r.relay(acme, "c", lacks, "vip")
		r.relay(other, "c", lacks, "vip")
		if err := r.Report(bounded(t), "c", map[string]ClientReport{"vip": lacks}); err != nil {
			t.Fatal(err)
		}
		want("three that lack it", 1, 2)
		of := h
		of.Serving = nil
		if got := ok[Lacking](t)(r.Lacking(bounded(t), &of)); got != (Lacking{1, 2}) {
			t.Errorf("for the first version: %+v; want 1 and 2", got)
		}
		r.pass("vip", 15*time.Second)
		want("silent ones", 0, 0)
	})
}
