package registry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

const svc = "shop"

func TestRegister(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		heard := r.hear(r.keys(svc).change(svc))
		first := registration(svc, "a", func(x *Registration) { x.Metadata = map[string]string{"zone": "z1", "old": "1"} })
		got := r.put(svc, codeDone, item("e1", "", first))[0]
		if got.revision != 1 || got.registered == 0 {
			t.Errorf("%+v; want got.revision == 1, got.registered != 0", got)
		}
		e := receive(t, heard)
		if e.ServiceName != svc || e.ChangeType != "registered" || e.Reason != "registered" || !slices.Equal(e.Instances, []string{"a"}) ||
			e.Revision != 1 || e.Birth != e.Stamp || len(e.Stamp) != 16 || len(e.Entries) != 1 || e.Entries[0].ID != "a" {
			t.Errorf(`%+v; want e.ServiceName == %v, e.ChangeType == "registered", e.Reason == "registered", slices.Equal(e.Instances, []string{"a"}), e.Revision == 1, e.Birth == %v, len(e.Stamp) == 16, len(e.Entries) == 1, e.Entries[0].ID == "a"`, e, svc, e.Stamp)
		}
		// An event has what HGETALL has.
		if diff := cmp.Diff(r.instance(svc, "a"), pairs(e.Entries[0].Fields)); diff != "" {
			t.Error(diff)
		}
		if !r.listed(svc) || r.record(svc)["longest"] != "10000" {
			t.Errorf("listed %t, record %v", r.listed(svc), r.record(svc))
		}
		// The same again is a heartbeat.
		at := r.beats(svc)["a"]
		r.pass(svc, 5*time.Second)
		if again := r.put(svc, codeSame, item("e1", "", first))[0]; again.registered != got.registered-5000 {
			t.Errorf("%+v; want again.registered == got.registered-5000", again)
		}
		if now := r.beats(svc)["a"]; now < at || r.record(svc)["revision"] != "1" {
			t.Errorf("score %d after %d, %v", now, at, r.record(svc))
		}
		// Other content takes the next revision; a label that is gone is removed; the rest stays.
		if code, err := r.verdict(bounded(t), svc, "a", "e1", false, "refused"); err != nil || code != codeDone {
			t.Fatal(code, err)
		}
		if e := receive(t, heard); e.Reason != "checked" || e.ChangeType != "updated" || e.Revision != 2 {
			t.Errorf(`%+v; want e.Reason == "checked", e.ChangeType == "updated", e.Revision == 2`, e)
		}
		second := first
		second.Metadata, second.Weight = map[string]string{"zone": "z2"}, new(2.0)
		if got := r.put(svc, codeDone, item("e1", "", second))[0]; got.revision != 3 {
			t.Errorf("%+v; want got.revision == 3", got)
		}
		e = receive(t, heard)
		h := r.instance(svc, "a")
		if diff := cmp.Diff(h, pairs(e.Entries[0].Fields)); diff != "" || e.Reason != "updated" {
			t.Error(e.Reason, diff)
		}
		if _, ok := h["metadata_old"]; ok || h["metadata_zone"] != "z2" || h["weight"] != "2" || h["checked"] != "failing" || h["checked_why"] != "refused" ||
			h["failing_since"] == "" || h["revision"] != "3" {
			t.Errorf(`%v; want not ok, h["metadata_zone"] == "z2", h["weight"] == "2", h["checked"] == "failing", h["checked_why"] == "refused", h["failing_since"] != "", h["revision"] == "3"`, h)
		}
		// One revision for all of one kind.
		answers := r.put(svc, codeDone, item("e1", "", registration(svc, "b")), item("e1", "", registration(svc, "c")))
		if e := receive(t, heard); answers[0].revision != 4 || answers[1].revision != 4 || !slices.Equal(e.Instances, []string{"b", "c"}) || len(e.Entries) != 2 {
			t.Errorf(`%+v, %+v; want answers[0].revision == 4, answers[1].revision == 4, slices.Equal(e.Instances, []string{"b", "c"}), len(e.Entries) == 2`, answers, e)
		}
		if diff := cmp.Diff(map[string]int64{"a": 3, "b": 4, "c": 4}, r.scores(r.keys(svc).changes(svc))); diff != "" {
			t.Error(diff)
		}
	})
}

func pairs(list []string) map[string]string {
	out := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

// TestLivesInOrder: the epochs of an id are ordered by when they registered first, also where Redis' clock goes back
// or its data are lost. One that was replaced does not replace its follower, even if it never heard that it had the id.
func TestLivesInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		elsewhere := func(x *Registration) { x.Host = "10.0.0.2" }
		ahead := r.now(svc) + 3_600_000
		first := item("e1", "", registration(svc, "a"))
		first.since = ahead
		if got := r.put(svc, codeDone, first)[0]; got.registered != ahead {
			t.Errorf("registered at %d, expected %d, when the epoch registered first", got.registered, ahead)
		}
		if got := r.put(svc, codeDone, item("e2", "e1", registration(svc, "a")))[0]; got.registered != ahead+1 {
			t.Errorf("registered at %d, expected %d, later than the replaced epoch", got.registered, ahead+1)
		}
		r.unchanged("a replaced epoch", func() {
			if got := r.put(svc, codeHolder, item("e1", "e2", registration(svc, "a")))[0]; !got.replaced || !got.supersedes(0) {
				t.Errorf("%+v, expected that the holder has replaced it", got)
			}
		})
		// That is kept with new content, too.
		r.put(svc, codeDone, item("e2", "", registration(svc, "a", func(x *Registration) { x.Weight = new(3.0) })))
		if got := r.put(svc, codeHolder, item("e1", "e2", registration(svc, "a")))[0]; !got.replaced {
			t.Errorf("%+v, expected that the holder has replaced it", got)
		}
		// A later epoch takes the id back at once, from another address too; an earlier one does not.
		back := item("e3", "e2", registration(svc, "a", elsewhere))
		back.since = ahead + 1
		if got := r.put(svc, codeHolder, back)[0]; got.replaced || !got.supersedes(ahead+1) || got.supersedes(ahead+2) || got.supersedes(0) {
			t.Errorf("%+v, expected a holder that registered at %d", got, ahead+1)
		}
		back.since = ahead + 2
		if got := r.put(svc, codeDone, back)[0]; got.registered != ahead+2 {
			t.Errorf("registered at %d, expected %d", got.registered, ahead+2)
		}
	})
}

// TestRegisterHolder: who may take an id from another epoch.
func TestRegisterHolder(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		elsewhere := func(x *Registration) { x.Host = "10.0.0.2" }
		const interval = MaxHeartbeatInterval // silent after three, far longer than the test
		r.put(svc, codeDone, item("e1", "", registration(svc, "a", func(x *Registration) { x.Interval = interval })))
		refused := func(epoch, replaces string, change ...func(*Registration)) (silent time.Duration) {
			t.Helper()
			var got answer
			r.unchanged("a refused register", func() {
				got = r.put(svc, codeHolder, item(epoch, replaces, registration(svc, "a", change...)))[0]
			})
			if h := got.holder; h.Epoch != "e1" || h.Host != "10.0.0.1" || h.Port != 8080 || h.Interval != interval || got.registered == 0 {
				t.Errorf(`%+v; want h.Epoch == "e1", h.Host == "10.0.0.1", h.Port == 8080, h.Interval == %v, got.registered != 0`, h, interval)
			}
			return got.holder.Silent
		}
		refused("e2", "")              // the same address, unnamed
		refused("e2", "e0")            // another one named
		refused("e2", "e1", elsewhere) // named, alive, elsewhere
		r.pass(svc, 2*interval)
		if silent := refused("e2", "e1", elsewhere); silent < 2*interval || silent > 3*interval {
			t.Error(silent)
		}
		r.pass(svc, interval)
		refused("e2", "", elsewhere) // silent, but unnamed
		heard := r.hear(r.keys(svc).change(svc))
		r.put(svc, codeDone, item("e2", "e1", registration(svc, "a", elsewhere)))
		if e := receive(t, heard); e.ChangeType != "updated" || e.Reason != "replaced" {
			t.Errorf(`%+v; want e.ChangeType == "updated", e.Reason == "replaced"`, e)
		}
		// From the same address at once.
		r.put(svc, codeDone, item("e3", "e2", registration(svc, "a", elsewhere)))
		// A late call of an earlier life does nothing, whatever it is.
		r.unchanged("a late call", func() {
			r.put(svc, codeHolder, item("e2", "e1", registration(svc, "a", elsewhere)))
			if got := r.beat(svc, beatItem{"a", "e2", "", `{"cpu":{"usage":1}}`}); got != "3" {
				t.Error(got)
			}
			if got := r.remove(svc, reasonDeregistered, deregisterItem{"a", "e2"}); got[0].code != codeHolder || got[0].holder.Epoch != "e3" {
				t.Errorf(`%+v; want got[0].code == %v, got[0].holder.Epoch == "e3"`, got, codeHolder)
			}
			if code, err := r.verdict(bounded(t), svc, "a", "e2", false, "x"); code != codeHolder || err != nil {
				t.Error(code, err)
			}
		})
		// One that does not beat is never silent.
		lasting := func(x *Registration) { x.Persistent = true }
		r.put(svc, codeDone, item("e1", "", registration(svc, "p", lasting)))
		r.put(svc, codeHolder, item("e2", "e1", registration(svc, "p", lasting, elsewhere)))
		r.put(svc, codeDone, item("e2", "e1", registration(svc, "p", lasting)))
		if score := r.beats(svc)["p"]; score != -1 {
			t.Error(score)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		a, b := registration(svc, "a"), registration(svc, "b")
		_, content := a.fields()
		r.put(svc, codeDone, item("e1", "", a), item("e1", "", b), item("e1", "", registration(svc, "p", func(x *Registration) { x.Persistent = true })))
		r.pass(svc, time.Minute)
		before := r.beats(svc)
		figures := r.hear(r.keys(svc).metrics(svc))
		if got := r.beat(svc,
			beatItem{"a", "e1", content, `{"cpu":{"usage":0.5}}`}, beatItem{"b", "e1", "other", ""}, beatItem{"none", "e1", content, "{}"},
			beatItem{"b", "e2", content, "{}"}, beatItem{"p", "e1", content, ""}); got != "1 2 4 3 2" {
			t.Error(got)
		}
		after := r.beats(svc)
		if after["a"] < before["a"]+60_000 || after["b"] != after["a"] || after["p"] != -1 || len(after) != 3 {
			t.Errorf("%v, before %v", after, before)
		}
		if h := r.instance(svc, "a"); h["heartbeat"] != strconv.FormatInt(after["a"], 10) || h["lastMetadataUpdate"] != h["heartbeat"] || h["metrics"] != `{"cpu":{"usage":0.5}}` {
			t.Errorf("%v; want h[\"heartbeat\"] == strconv.FormatInt(after[\"a\"], 10), h[\"lastMetadataUpdate\"] == h[\"heartbeat\"], h[\"metrics\"] == `{\"cpu\":{\"usage\":0.5}}`", h)
		}
		if e := receive(t, figures); e.ID != "a" || string(e.Metrics) != `{"cpu":{"usage":0.5}}` || e.Timestamp != after["a"] {
			t.Errorf("%+v; want e.ID == \"a\", string(e.Metrics) == `{\"cpu\":{\"usage\":0.5}}`, e.Timestamp == after[\"a\"]", e)
		}
		if len(r.instance(svc, "none")) > 0 || r.record(svc)["revision"] != "1" {
			t.Error("a heartbeat has registered something, or taken a revision")
		}
		// Half there: a hash without its score, and a score without its hash.
		r.do("ZREM", r.keys(svc).heartbeats(svc), "a")
		r.do("DEL", r.keys(svc).instance(svc, "b"))
		r.unchanged("half an instance", func() {
			if got := r.beat(svc, beatItem{"a", "e1", content, "{}"}, beatItem{"b", "e1", content, "{}"}); got != "4 4" {
				t.Error(got)
			}
		})
		r.put(svc, codeDone, item("e1", "", a), item("e1", "", b))
		// A key of another type is replaced.
		r.do("DEL", r.keys(svc).instance(svc, "a"))
		r.do("SET", r.keys(svc).instance(svc, "a"), "x")
		if got := r.beat(svc, beatItem{"a", "e1", content, ""}, beatItem{"b", "e1", content, ""}); got != "4 1" {
			t.Error(got)
		}
		r.put(svc, codeDone, item("e1", "", a))
		if h := r.instance(svc, "a"); h["epoch"] != "e1" {
			t.Errorf(`%v; want h["epoch"] == "e1"`, h)
		}
	})
}

// TestFlatMetrics: readers of the second version find each figure in a field.
func TestFlatMetrics(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		it := item("e1", "", registration(svc, "a"))
		it.metrics = `{"cpu":{"usage":0.5,"cores":4},"memory":{"swap":false}}`
		want := map[string]string{"metadata_cpu_usage": "0.5", "metadata_cpu_cores": "4", "metadata_memory_swap": "false", "metrics": it.metrics}
		check := func() {
			t.Helper()
			h := r.instance(svc, "a")
			for field, value := range want {
				if h[field] != value {
					t.Errorf("%s is %q in %v", field, h[field], h)
				}
			}
		}
		for range 2 { // new, and the same content
			if _, err := r.register(bounded(t), svc, true, []registerItem{it}); err != nil {
				t.Fatal(err)
			}
			check()
		}
		want["metadata_cpu_usage"], want["metrics"] = "0.75", `{"cpu":{"usage":0.75}}`
		if _, err := r.heartbeat(bounded(t), svc, true, []beatItem{{"a", "e1", "", want["metrics"]}}); err != nil {
			t.Fatal(err)
		}
		check()
	})
}

func TestDeregister(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b", "c"} {
			r.put(svc, codeDone, item("e1", "", registration(svc, id)))
		}
		heard := r.hear(r.keys(svc).change(svc))
		got := r.remove(svc, reasonDeregistered, deregisterItem{"a", "e1"}, deregisterItem{"none", "e1"}, deregisterItem{"b", "e2"})
		if codes(got) != "1 4 3" || got[0].revision != 4 {
			t.Errorf(`%+v; want codes(got) == "1 4 3", got[0].revision == 4`, got)
		}
		e := receive(t, heard)
		if e.ChangeType != "removed" || e.Reason != "deregistered" || !slices.Equal(e.Instances, []string{"a"}) || len(e.Entries) != 1 || len(e.Entries[0].Fields) != 0 {
			t.Errorf(`%+v; want e.ChangeType == "removed", e.Reason == "deregistered", slices.Equal(e.Instances, []string{"a"}), len(e.Entries) == 1, len(e.Entries[0].Fields) == 0`, e)
		}
		r.unchanged("a repetition", func() { r.remove(svc, reasonDeregistered, deregisterItem{"a", "e1"}) })
		if h := r.record(svc); h["why"] != "" || !r.listed(svc) {
			t.Errorf(`%v; want h["why"] == "", r.listed(svc)`, h)
		}
		// The last one: the record stays for a week and says why.
		r.remove(svc, reasonOperator, deregisterItem{"b", ""}, deregisterItem{"c", ""})
		h, k := r.record(svc), r.keys(svc)
		if h["why"] != WhyRemoved || h["longest"] != "" || r.listed(svc) {
			t.Errorf("%v, listed %t", h, r.listed(svc))
		}
		ttl := func(key string) int64 {
			m := r.do("PTTL", key)
			n, _ := m.AsInt64()
			return n
		}
		for _, key := range []string{k.record(svc), k.changes(svc)} {
			if ms := ttl(key); ms < 6*24*3600_000 {
				t.Errorf("%s has a TTL of %d ms", key, ms)
			}
		}
		r.put(svc, codeDone, item("e1", "", registration(svc, "a")))
		if h := r.record(svc); h["why"] != "" || h["revision"] != "6" || ttl(k.record(svc)) != -1 || ttl(k.changes(svc)) != -1 || !r.listed(svc) {
			t.Errorf(`%v; want h["why"] == "", h["revision"] == "6", ttl(k.record(svc)) == -1, ttl(k.changes(svc)) == -1, r.listed(svc)`, h)
		}
		r.remove(svc, reasonDeregistered, deregisterItem{"a", "e1"})
		if h := r.record(svc); h["why"] != WhyDeregistered {
			t.Errorf(`%v; want h["why"] == WhyDeregistered`, h)
		}
	})
}

func TestVerdict(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.put(svc, codeDone, item("e1", "", registration(svc, "a")))
		for i, step := range []struct {
			id, epoch string
			passing   bool
			why       string
			code      int
		}{
			{"none", "e1", true, "", codeGone},
			{"a", "e2", true, "", codeHolder},
			{"a", "e1", true, "", codeDone},
			{"a", "e1", true, "", codeSame},
			{"a", "e1", false, "refused", codeDone},
			{"a", "e1", false, "refused", codeSame},
			{"a", "e1", false, "timeout", codeDone},
			{"a", "e1", true, "", codeDone},
		} {
			before := r.instance(svc, "a")
			code, err := r.verdict(bounded(t), svc, step.id, step.epoch, step.passing, step.why)
			if code != step.code || err != nil {
				t.Errorf("step %d: %d, %v", i, code, err)
			}
			h := r.instance(svc, "a")
			if before["checked_at"] != "" {
				before["checked_at"] = h["checked_at"]
			}
			if step.code != codeDone && !cmp.Equal(h, before) {
				t.Errorf("step %d: %v", i, h)
			}
			if step.code == codeDone && (h["checked_why"] != step.why || (h["failing_since"] == "") != step.passing) {
				t.Errorf("step %d: %v", i, h)
			}
			if before["failing_since"] != "" && h["failing_since"] != "" && before["failing_since"] != h["failing_since"] {
				t.Errorf("step %d: it is failing since %s, before since %s", i, h["failing_since"], before["failing_since"])
			}
		}
		if len(r.instance(svc, "none")) > 0 {
			t.Error("a verdict has made an instance")
		}
	})
}

func TestOverride(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		weight, off := 0.25, false
		set := &Override{Weight: &weight, Enabled: &off, Author: "eve", Note: `half "open" é`}
		want := func(id string, o *Override, lasts time.Duration, code int) int64 {
			t.Helper()
			a, err := r.override(bounded(t), svc, id, o, lasts, nil)
			if err != nil || a.code != code {
				t.Fatalf("%+v, %v; want no error, a.code == %v", a, err, code)
			}
			return a.revision
		}
		want("a", set, 0, codeGone)
		want("a", nil, 0, codeGone)
		r.put(svc, codeDone, item("e1", "", registration(svc, "a")), item("e1", "", registration(svc, "b")))
		heard := r.hear(r.keys(svc).change(svc))
		if rev := want("a", set, time.Hour, codeDone); rev != 2 {
			t.Error(rev)
		}
		stored := func() *Override {
			t.Helper()
			return parseOverride(t, r.hash(r.keys(svc).overrides(svc))["a"])
		}
		o := stored()
		if *o.Weight != 0.25 || *o.Enabled || o.Draining != nil || o.Author != "eve" || o.Note != set.Note || o.UntilMS != o.AtMS+3600_000 || o.GoneMS != 0 {
			t.Errorf("%+v", o)
		}
		if e := receive(t, heard); e.Reason != "override" || e.Entries[0].Override == "" || e.Revision != 2 {
			t.Errorf(`%+v; want e.Reason == "override", e.Entries[0].Override != "", e.Revision == 2`, e)
		}
		// It outlives its instance, and is there when that comes back.
		r.remove(svc, reasonDeregistered, deregisterItem{"a", "e1"})
		if o := stored(); o.GoneMS == 0 {
			t.Errorf("%+v; want o.GoneMS != 0", o)
		}
		want("a", set, 0, codeDone) // it can be changed meanwhile
		if o := stored(); o.GoneMS == 0 || o.UntilMS != 0 {
			t.Errorf("%+v; want o.GoneMS != 0, o.UntilMS == 0", o)
		}
		receive(t, heard)
		r.put(svc, codeDone, item("e2", "", registration(svc, "a")))
		if e := receive(t, heard); parseOverride(t, e.Entries[0].Override).GoneMS != 0 || stored().GoneMS != 0 {
			t.Errorf("%+v; want parseOverride(t, e.Entries[0].Override).GoneMS == 0, stored().GoneMS == 0", e)
		}
		want("a", nil, 0, codeDone)
		if e := receive(t, heard); e.Reason != "override" || e.Entries[0].Override != "" {
			t.Errorf(`%+v; want e.Reason == "override", e.Entries[0].Override == ""`, e)
		}
		want("a", nil, 0, codeGone)
		// It ends by itself.
		want("a", set, time.Hour, codeDone)
		receive(t, heard)
		r.pass(svc, time.Hour+time.Second)
		r.put(svc, codeSame, item("e2", "", registration(svc, "a")), item("e1", "", registration(svc, "b")))
		r.clean(svc)
		if e := receive(t, heard); e.Reason != "override" || len(r.hash(r.keys(svc).overrides(svc))) != 0 {
			t.Errorf(`%+v; want e.Reason == "override", len(r.hash(r.keys(svc).overrides(svc))) == 0`, e)
		}
		// And a week after its instance is gone.
		want("a", set, 0, codeDone)
		r.remove(svc, reasonDeregistered, deregisterItem{"a", "e2"})
		for _, left := range []int{1, 0} {
			r.pass(svc, 4*24*time.Hour)
			r.put(svc, codeSame, item("e1", "", registration(svc, "b")))
			r.clean(svc)
			if n := len(r.hash(r.keys(svc).overrides(svc))); n != left {
				t.Errorf("%d overrides, expected %d", n, left)
			}
		}
		// There is room for 1,000. Those of instances that are gone make room, the oldest first.
		overrides := r.keys(svc).overrides(svc)
		for i := range 998 {
			r.do("HSET", overrides, "x"+strconv.Itoa(i), `{"author":"eve"}`)
		}
		r.do("HSET", overrides, "old", `{"author":"\"gone_ms\":1","gone_ms":1764000000000}`, "older", `{"gone_ms":1763000000000}`)
		r.put(svc, codeDone, item("e1", "", registration(svc, "c")), item("e1", "", registration(svc, "d")))
		want("b", set, 0, codeDone)
		if left := r.hash(overrides); len(left) != 1000 || left["older"] != "" {
			t.Errorf("%d overrides, older: %s", len(left), left["older"])
		}
		want("c", set, 0, codeDone)
		want("d", set, 0, codeFull)
		_, err := (&Store{r.conn}).SetOverride(bounded(t), svc, "d", set, 0, nil)
		if freeslot.CodeOf(err) != freeslot.CodeOverloaded || strings.Contains(err.Error(), "memory") {
			t.Error(err)
		}
		want("x1", set, 0, codeDone)
	})
}

// TestOverrideSeen: a change that is meant for one override leaves another one alone. One that has
// ended by itself is as none.
func TestOverrideSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.put(svc, codeDone, item("e1", "", registration(svc, "a")))
		off := false
		set := &Override{Enabled: &off, Author: "eve"}
		try := func(o *Override, lasts time.Duration, seen int64, code int) int64 {
			t.Helper()
			before := r.hash(r.keys(svc).overrides(svc))["a"]
			a, err := r.override(bounded(t), svc, "a", o, lasts, &seen)
			after := r.hash(r.keys(svc).overrides(svc))["a"]
			if err != nil || a.code != code || code == codeOther && before != after {
				t.Fatalf("%+v, %v, %q after %q; want code %d", a, err, after, before, code)
			}
			if after == "" {
				return 0
			}
			return parseOverride(t, after).AtMS
		}
		try(set, 0, 5, codeOther)
		first := try(set, 0, 0, codeDone)
		try(set, 0, 0, codeOther)
		second := try(set, time.Hour, first, codeDone)
		if second <= first {
			t.Errorf("the second override is of %d, the first of %d; want a later one", second, first)
		}
		try(nil, 0, first, codeOther)
		r.pass(svc, time.Hour+time.Second)
		third := try(set, 0, 0, codeDone)
		try(nil, 0, third, codeDone)
		try(nil, 0, third, codeOther)
		seen := third
		_, err := (&Store{r.conn}).SetOverride(bounded(t), svc, "a", set, 0, &seen)
		if freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Errorf("a change of an override that is gone: %v; want a conflict", err)
		}
	})
}

// TestRaces: of many callers that want one id one has it; calls that race with cleanup leave a
// whole instance or none.
func TestRaces(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const racers = 16
		ctx := bounded(t)
		for round := range 10 {
			id := "id" + strconv.Itoa(round)
			won := make(chan string, racers)
			var all sync.WaitGroup
			for i := range racers {
				epoch := "e" + strconv.Itoa(i)
				all.Go(func() {
					reg := registration(svc, id, func(x *Registration) { x.Port = 1000 + i })
					got, err := r.register(ctx, svc, false, []registerItem{item(epoch, "", reg)})
					if err != nil {
						t.Error(err)
					} else if got[0].code == codeDone {
						won <- epoch
					}
				})
			}
			all.Wait()
			close(won)
			if epoch := <-won; r.instance(svc, id)["epoch"] != epoch || len(won) > 0 {
				t.Errorf("%s won, %v, and %d others", epoch, r.instance(svc, id), len(won))
			}
		}
		r.pass(svc, 3*time.Minute)
		r.do("HSET", r.keys(svc).record(svc), "cleaned", strconv.FormatInt(r.now(svc)-31_000, 10), "guard_done", strconv.FormatInt(r.now(svc)-1000, 10))
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				id := "id" + strconv.Itoa(i%10)
				var err error
				switch i % 3 {
				case 0:
					_, err = r.cleanup(ctx, svc)
				case 1:
					_, err = r.heartbeat(ctx, svc, false, []beatItem{{id, r.instance(svc, id)["epoch"], "", ""}})
				case 2:
					_, err = r.register(ctx, svc, false, []registerItem{item("new", "", registration(svc, id))})
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		beats := r.beats(svc)
		for i := range 10 {
			id := "id" + strconv.Itoa(i)
			if _, scored := beats[id]; scored != (len(r.instance(svc, id)) > 0) {
				t.Errorf("%s is half there", id)
			}
		}
	})
}

// TestLookPages: the late ids of several services are all found over the pages of a look, the
// oldest first, and none that is not late.
func TestLookPages(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		now := r.now("web")
		counts := map[string]int{"web": 2500, "api": 1200, "one": 1, "none": 0}
		var items []lookItem
		for _, service := range []string{"web", "api", "one", "none"} {
			items = append(items, lookItem{service: service, timeout: time.Minute})
			key := r.keys(service).heartbeats(service)
			for i := range counts[service] {
				r.do("ZADD", key, strconv.FormatInt(now-120_000-int64(i), 10), fmt.Sprintf("late-%d", i))
			}
			r.do("ZADD", key, strconv.FormatInt(now, 10), "fresh", "+inf", "persistent")
		}
		for _, it := range items { // on a cluster they have different tags
			found, err := r.conn.poll(bounded(t), false, []lookItem{it})
			if err != nil {
				t.Fatal(err)
			}
			late, want := found[0].late, counts[it.service]
			if len(late) != want || found[0].count != want {
				t.Fatalf("%s: %d of %d late ids, want %d", it.service, len(late), found[0].count, want)
			}
			for i, id := range late {
				if oldest := fmt.Sprintf("late-%d", want-1-i); id != oldest {
					t.Fatalf("%s: late id %d is %s, want %s", it.service, i, id, oldest)
				}
			}
		}
	})
}

// TestLoadPages: pages have fewer instances where these are large, and all of them come.
func TestLoadPages(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			service     string
			bytes, most int // of a label, and the most that a page may be
			large       int // instances of the largest page at least
		}{{"thin", 10, 2 * pageBytes, 150}, {"fat", 6000, 2 * pageBytes, 0}} {
			want := make(map[string]bool)
			k := r.keys(tc.service)
			for i := range 600 {
				id := fmt.Sprintf("i%d", i)
				want[id] = true
				r.do("ZADD", k.heartbeats(tc.service), strconv.Itoa(i), id)
				r.do("HSET", k.instance(tc.service, id), "host", "h", "revision", "1", "metadata_x", strings.Repeat("x", tc.bytes))
			}
			largest := 0
			for cursor := "0"; ; {
				p, err := r.conn.load(bounded(t), tc.service, cursor)
				if err != nil {
					t.Fatal(err)
				}
				bytes := 0
				for i := range p.entries {
					bytes += p.entries[i].bytes()
					delete(want, p.entries[i].ID)
				}
				if largest = max(largest, len(p.entries)); bytes > tc.most {
					t.Errorf("%s: a page has %d bytes, want at most %d", tc.service, bytes, tc.most)
				}
				if cursor = p.cursor; cursor == "0" {
					break
				}
			}
			if len(want) > 0 || largest < tc.large {
				t.Errorf("%s: %d instances did not come, and the largest page had %d, want %d or more", tc.service, len(want), largest, tc.large)
			}
		}
		for _, cursor := range []string{"", "x", "1.", "1.0", "1.201", "1.-1", "-1"} {
			if _, err := r.conn.load(bounded(t), "thin", cursor); err == nil {
				t.Errorf("cursor %q was taken", cursor)
			}
		}
	})
}
