package admission

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/namelist"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// canary refuses bots, sends pilots to a pool, and does not know members of the draft list.
const canary = `{"name": "canary", "attributes": {"affinity_key": "string", "priority": "integer"},
	"variants": {"new": {"preferred_pool": "b", "colour": "red"}, "only": {"pool": "c"}, "none": null}, "default": "allow", "rules": [
	{"name": "bots", "kind": "expression", "expression": "key startsWith \"bot\"", "unknown": "skip", "outcome": "deny"},
	{"name": "pilots", "kind": "expression", "expression": "key startsWith \"pilot\"", "unknown": "skip", "outcome": "variant: new"},
	{"name": "only", "kind": "expression", "expression": "key == \"only\"", "unknown": "skip", "outcome": "variant: only"},
	{"name": "none", "kind": "expression", "expression": "priority == 9", "unknown": "skip", "outcome": "variant: none"},
	{"name": "draft", "kind": "in", "list": "draft", "unknown": "stop", "outcome": "deny"}]}`

// plain reads no attributes.
const plain = `{"name": "plain", "default": "allow", "rules": [
	{"name": "few", "kind": "percentage", "percent": 1, "unknown": "skip", "outcome": "deny"},
	{"name": "draft", "kind": "in", "list": "draft", "unknown": "skip", "outcome": "deny"}]}`

// newGate has the chains, the list as a draft, and these admissions by tenant.
func newGate(t testing.TB, admissions map[string]config.Admission) (*Gate, *prometheus.Registry) {
	t.Helper()
	redis, ctx := redistest.Shared(t), waittest.Context(t)
	cfg := config.DefaultReplica()
	cfg.Redis.URL, cfg.Redis.KeyPrefix = redis.AdminURL(), redis.Prefix(t)
	cfg.Tenants = make(map[string]config.Tenant)
	for tenant, a := range admissions {
		cfg.Tenants[tenant] = config.Tenant{Admission: a}
	}
	control := lists.NewControl(redis.Client(t), cfg.Redis.KeyPrefix, false, zaptest.NewLogger(t), nil)
	if _, err := control.Create(ctx, "draft", lists.Spec{}); err != nil {
		t.Fatal(err)
	}
	for name, document := range map[string]string{"canary": canary, "plain": plain} {
		if _, err := control.PutChain(ctx, lists.ChainPut{Chain: name, Document: document, Lists: []string{"draft"}}); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	mine := own.New(cfg, zaptest.NewLogger(t), reg)
	t.Cleanup(func() {
		if err := mine.Stop(waittest.Context(t)); err != nil {
			t.Error(err)
		}
	})
	g := New(cfg, mine, zaptest.NewLogger(t), reg)
	client, err := mine.Client()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range g.all() {
		r.chain = client.Chain(r.Chain)
		waittest.Until(t, "the chain", func() bool {
			return r.chain.Status().Version == 1 || r.chain.Status().Reason == namelist.ChainReasonChainUnknown
		})
	}
	return g, reg
}

// TestAdmit: each outcome, mode and subject, and what the job tells of it.
func TestAdmit(t *testing.T) {
	t.Parallel()
	enforce := config.Admission{Chain: "canary", Mode: config.AdmissionEnforce, Subject: config.SubjectAffinityKey}
	strict, observe, byLabel, missing := enforce, enforce, enforce, enforce
	strict.Unknown, observe.Mode, byLabel.Subject, missing.Chain = config.UnknownRefuse, "", "label:user", "missing"
	g, reg := newGate(t, map[string]config.Admission{
		"enforce": enforce, "strict": strict, "observe": observe, "label": byLabel, "missing": missing, "bot-tenant": {Chain: "canary", Mode: config.AdmissionEnforce},
		"free": {},
	})
	for _, test := range []struct {
		tenant, key, pool, preferred string
		priority                     int
		refused, told                string // a part of the error, and of the note
	}{
		{tenant: "free", key: "bot-1"},
		{tenant: "stranger", key: "bot-1"},
		{tenant: "enforce", key: "bot-1", refused: "chain canary, version 1, does not admit the job: the outcome is deny by rule bots"},
		{tenant: "enforce", key: "pilot-1", preferred: "b", told: "variant by rule pilots"},
		{tenant: "enforce", key: "only", pool: "c", told: "variant by rule only"},
		{tenant: "enforce", key: "x", priority: 9, told: "variant by rule none"},
		{tenant: "enforce", key: "x", told: "unknown by stopped draft (rule draft is unknown: draft)"},
		{tenant: "strict", key: "x", refused: "the outcome is unknown by stopped draft"},
		{tenant: "observe", key: "bot-1", told: "deny by rule bots"},
		{tenant: "observe", key: "pilot-1", told: "variant by rule pilots"},
		{tenant: "label", key: "bot-1", refused: "deny by rule bots"},
		{tenant: "missing", key: "bot-1"},
		{tenant: "bot-tenant", key: "x", refused: "deny by rule bots"},
	} {
		job := &freeslot.Job{Service: "asr", Priority: test.priority, AffinityKey: test.key}
		job.Requirement.Labels = map[string]string{"user": test.key}
		q := dispatch.Request{Tenant: test.tenant, Job: job}
		err := g.Admit(&q)
		about := test.tenant + " " + test.key
		if test.refused != "" {
			if freeslot.CodeOf(err) != freeslot.CodeNotAdmitted || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %v; want not_admitted with %q", about, err, test.refused)
			}
			continue
		}
		if err != nil || job.Admission != nil {
			t.Errorf("%s: %v, the caller's job has %+v; want no error, and the job as it was", about, err, job.Admission)
			continue
		}
		a := q.Job.Admission
		if test.told == "" {
			if a != nil {
				t.Errorf("%s: %+v; want no admission", about, a)
			}
			continue
		}
		if got := a.Outcome + " " + a.Reason; got != test.told || a.Observed != (test.tenant == "observe") {
			t.Errorf("%s: %q, observed %v; want %q", about, got, a.Observed, test.told)
		}
		if r := q.Job.Requirement; r.Pool != test.pool || r.PreferredPool != test.preferred {
			t.Errorf("%s: pools %q and %q; want %q and %q", about, r.Pool, r.PreferredPool, test.pool, test.preferred)
		}
		if back := q.Job.Asked(); back.Admission != nil || back.Requirement.Pool != "" || back.Requirement.PreferredPool != "" {
			t.Errorf("%s: asked for %+v; want the job as it was", about, back)
		}
	}
	want := `# HELP freeslot_admission_jobs_total Jobs about which a chain decided. Admitted: allow, variant, variant_without_pool, unknown, and would_refuse by a chain that only observes. Refused: refused, unknown_refused.
# TYPE freeslot_admission_jobs_total counter
freeslot_admission_jobs_total{chain="canary",outcome="refused"} 3
freeslot_admission_jobs_total{chain="canary",outcome="unknown"} 1
freeslot_admission_jobs_total{chain="canary",outcome="unknown_refused"} 1
freeslot_admission_jobs_total{chain="canary",outcome="variant"} 3
freeslot_admission_jobs_total{chain="canary",outcome="variant_without_pool"} 1
freeslot_admission_jobs_total{chain="canary",outcome="would_refuse"} 1
freeslot_admission_jobs_total{chain="missing",outcome="unknown"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "freeslot_admission_jobs_total"); err != nil {
		t.Error(err)
	}
	decided := `# HELP freeslot_namelist_chain_decisions_total Decisions of a chain by the rule that made them, (default) where none did, and by outcome.
# TYPE freeslot_namelist_chain_decisions_total counter
freeslot_namelist_chain_decisions_total{chain="canary",outcome="deny",rule="bots"} 4
freeslot_namelist_chain_decisions_total{chain="canary",outcome="unknown",rule="draft"} 2
freeslot_namelist_chain_decisions_total{chain="canary",outcome="variant",rule="none"} 1
freeslot_namelist_chain_decisions_total{chain="canary",outcome="variant",rule="only"} 1
freeslot_namelist_chain_decisions_total{chain="canary",outcome="variant",rule="pilots"} 2
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(decided), "freeslot_namelist_chain_decisions_total")
	if err != nil {
		t.Error(err)
	}
}

// A job has the attributes that its chain declares, and no others.
func TestAttributes(t *testing.T) {
	t.Parallel()
	job := &freeslot.Job{Service: "asr", AffinityKey: "pilot-1", Priority: 3}
	job.Requirement.Pool, job.Requirement.PreferredPool = "a", "b"
	q := dispatch.Request{Tenant: "acme", Job: job}
	all := map[string]any{
		"tenant": "acme", "service": "asr", "affinity_key": "pilot-1", "priority": 3, "pool": "a", "preferred_pool": "b",
	}
	for name, want := range all {
		if got := attributes(&q, []string{"unheard", name}); len(got) != 1 || got[name] != want {
			t.Errorf("attributes of a chain that declares %s are %v; want %v alone", name, got, want)
		}
	}
	if got := attributes(&q, []string{"unheard"}); got != nil {
		t.Errorf("attributes of a chain that declares none of a job's are %v; want nil, which costs nothing", got)
	}
}

func BenchmarkAdmit(b *testing.B) {
	g, _ := newGate(b, map[string]config.Admission{
		"acme":  {Chain: "canary", Mode: config.AdmissionEnforce, Subject: config.SubjectAffinityKey},
		"plain": {Chain: "plain", Mode: config.AdmissionEnforce, Subject: config.SubjectAffinityKey},
	})
	job := &freeslot.Job{Service: "asr", AffinityKey: "pilot-1"}
	for _, tenant := range []string{"acme", "plain", "other"} {
		b.Run("tenant="+tenant, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				q := dispatch.Request{Tenant: tenant, Job: job}
				if err := g.Admit(&q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
