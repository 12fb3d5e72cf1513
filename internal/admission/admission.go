// Package admission lets chains of rules decide about the jobs of tenants, before they are placed:
// whether a job is admitted, and to which pool it goes. It decides from memory: a submit waits for
// no I/O, and what memory cannot decide is unknown.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/namelist/own"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/namelist"
)

// patience bounds how long a start waits for the chains.
const patience = 5 * time.Second

// maxPools bounds the variants that are remembered of one version; a document has at most 64.
const maxPools = 64

// The outcomes of the metric, in addition to the texts of [namelist.Outcome].
const (
	outcomeRefused        = "refused"
	outcomeUnknownRefused = "unknown_refused"
	outcomeWouldRefuse    = "would_refuse"
	outcomeNoPool         = "variant_without_pool"
)

// Gate decides about jobs. It is safe for concurrent use once Start has returned.
type Gate struct {
	lists *own.Lists
	log   *zap.Logger
	// tenants holds the rules by tenant, nil for a tenant without one. others is for all other
	// tenants.
	tenants map[string]*rule
	others  *rule
}

// rule is what is configured for some tenants.
type rule struct {
	config.Admission

	label string // the label of the jobs' requirements that is the subject; empty for other subjects
	chain *namelist.Chain
	pools atomic.Pointer[pools]
	count func(outcome string) prometheus.Counter
}

// New makes a gate; nil if no tenant has an admission. It does no I/O.
func New(cfg config.Replica, lists *own.Lists, log *zap.Logger, reg prometheus.Registerer) *Gate {
	jobs := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "freeslot", Name: "admission_jobs_total",
		Help: "Jobs about which a chain decided. Admitted: allow, variant, variant_without_pool, unknown, and would_refuse " +
			"by a chain that only observes. Refused: refused, unknown_refused.",
	}, []string{"chain", "outcome"})
	reg.MustRegister(jobs)
	g := &Gate{lists: lists, log: log, tenants: make(map[string]*rule)}
	some := false
	ruleOf := func(a config.Admission) *rule {
		if a.Chain == "" {
			return nil
		}
		some = true
		r := &rule{
			Admission: a, count: func(outcome string) prometheus.Counter { return jobs.WithLabelValues(a.Chain, outcome) },
		}
		r.label, _ = strings.CutPrefix(a.Subject, config.SubjectLabel)
		if r.label == a.Subject {
			r.label = ""
		}
		return r
	}
	for name, t := range cfg.Tenants {
		g.tenants[name] = ruleOf(t.Admission)
	}
	if g.others = ruleOf(cfg.TenantDefaults.Admission); !some {
		return nil
	}
	return g
}

// all returns the rules of all tenants.
func (g *Gate) all() []*rule {
	return slices.DeleteFunc(
		append(slices.Collect(maps.Values(g.tenants)), g.others), func(r *rule) bool { return r == nil },
	)
}

// Start follows the chains, and waits up to five seconds for them and their lists; for a chain that
// does not exist it does not wait. Until then jobs are unknown.
func (g *Gate) Start(ctx context.Context) error {
	client, err := g.lists.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, r := range g.all() {
		r.chain = client.Chain(r.Chain)
	}
	for _, r := range g.all() {
		switch err := ready(ctx, r.chain); {
		case errors.Is(err, errUnknown):
			g.log.Info("admission.chain_unknown", zap.String("chain", r.Chain))
		case err != nil:
			g.log.Warn("admission.chain_not_ready", zap.String("chain", r.Chain), zap.Error(err))
		}
	}
	return nil
}

var errUnknown = errors.New("there is no such chain")

// ready waits until a chain decides, unless it does not exist.
func ready(ctx context.Context, c *namelist.Chain) error {
	heard := make(chan struct{}, 1)
	stop := c.OnChange(func(s namelist.ChainStatus) {
		if s.Reason != namelist.ChainReasonNotLoaded {
			follow.Wake(heard)
		}
	})
	defer stop()
	select {
	case <-heard:
	case <-ctx.Done():
	}
	if c.Status().Reason == namelist.ChainReasonChainUnknown {
		return errUnknown
	}
	return c.WaitReady(ctx)
}

// Admit decides about a job. It returns not_admitted, or nil for a job that is admitted; the
// request then has a copy of the job that says what decided, unless the chain does not exist.
func (g *Gate) Admit(q *dispatch.Request) error {
	r, named := g.tenants[q.Tenant]
	if !named {
		r = g.others
	}
	if r == nil {
		return nil
	}
	d := r.decide(q)
	refuse := d.Outcome == namelist.OutcomeDeny ||
		d.Outcome == namelist.OutcomeUnknown && r.Unknown == config.UnknownRefuse
	observe := r.Mode != config.AdmissionEnforce
	if refuse && !observe {
		outcome := outcomeRefused
		if d.Outcome != namelist.OutcomeDeny {
			outcome = outcomeUnknownRefused
		}
		r.count(outcome).Inc()
		return &freeslot.Error{Code: freeslot.CodeNotAdmitted, Message: fmt.Sprintf(
			"chain %s, version %d, does not admit the job: the outcome is %s %s", r.Chain, d.Version, d.Outcome, by(&d))}
	}
	job := *q.Job
	job.Admission = &freeslot.Admission{
		Chain: r.Chain, Version: d.Version, Outcome: d.Outcome.String(), Variant: d.Variant, Rule: d.Rule, Reason: by(&d),
		Observed: observe,
	}
	outcome := d.Outcome.String()
	switch {
	case refuse:
		outcome = outcomeWouldRefuse
	case d.Outcome == namelist.OutcomeVariant && !observe && !r.poolsOf(&d).put(&job):
		outcome = outcomeNoPool
	}
	r.count(outcome).Inc()
	if d.Reason != namelist.ChainReasonChainUnknown { // else each job would name a chain that no one has made
		q.Job = &job
	}
	return nil
}

// by says what led to a decision.
func by(d *namelist.Decision) string {
	space := " "
	if d.Rule == "" {
		space = ""
	}
	if w := &d.Doubt; w.Rule != "" {
		return "by " + d.Reason.String() + space + d.Rule + " (rule " + w.Rule + " is unknown: " + w.Why + ")"
	}
	return "by " + d.Reason.String() + space + d.Rule
}

// decide asks the chain about a job.
func (r *rule) decide(q *dispatch.Request) namelist.Decision {
	key := q.Tenant
	switch {
	case r.label != "":
		key = q.Job.Requirement.Labels[r.label]
	case r.Subject == config.SubjectAffinityKey:
		key = q.Job.AffinityKey
	}
	for {
		version, names := r.chain.Attributes()
		d := r.chain.Peek(namelist.Subject{Key: key, Attributes: attributes(q, names)})
		if d.Version == version { // else another version declares others
			return d
		}
	}
}

// attributes returns the attributes of a job that a chain declares. To make others would cost more
// than the decision.
func attributes(q *dispatch.Request, declared []string) (all map[string]any) {
	for _, name := range declared {
		var v any
		switch name {
		case "tenant":
			v = q.Tenant
		case "service":
			v = q.Job.Service
		case "affinity_key":
			v = q.Job.AffinityKey
		case "priority":
			v = q.Job.Priority
		case "pool":
			v = q.Job.Requirement.Pool
		case "preferred_pool":
			v = q.Job.Requirement.PreferredPool
		default:
			continue
		}
		if all == nil {
			all = make(map[string]any, len(declared))
		}
		all[name] = v
	}
	return all
}

// pools holds what the variants of one version mean.
type pools struct {
	version int64
	by      map[string]pool
}

// pool is the value of a variant that is for jobs. Other fields of the value are ignored.
type pool struct {
	Pool          string `json:"pool"`
	PreferredPool string `json:"preferred_pool"`
}

// poolsOf returns what a decision's variant means. A value is decoded once.
func (r *rule) poolsOf(d *namelist.Decision) pool {
	known := r.pools.Load()
	if known != nil && known.version == d.Version {
		if p, there := known.by[d.Variant]; there {
			return p
		}
	}
	var p pool
	if json.Unmarshal(d.Value, &p) != nil ||
		p.Pool != "" && freeslot.ValidateName("pool", p.Pool) != nil ||
		p.PreferredPool != "" && freeslot.ValidateName("preferred_pool", p.PreferredPool) != nil {
		p = pool{}
	}
	next := &pools{version: d.Version, by: map[string]pool{d.Variant: p}}
	if known != nil && known.version == d.Version && len(known.by) < maxPools {
		maps.Copy(next.by, known.by)
	}
	r.pools.Store(next) // of two at once the last stays; the other is decoded again
	return p
}

// put sets the pools of a job, and reports whether there are any.
func (p pool) put(job *freeslot.Job) bool {
	a, q := job.Admission, &job.Requirement
	if p.Pool != "" {
		a.Pool, a.AskedPool, q.Pool = p.Pool, q.Pool, p.Pool
	}
	if p.PreferredPool != "" {
		a.PreferredPool, a.AskedPreferredPool, q.PreferredPool = p.PreferredPool, q.PreferredPool, p.PreferredPool
	}
	return p != pool{}
}
