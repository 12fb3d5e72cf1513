package selection

import (
	"slices"

	"github.com/freeslot/freeslot"
)

// Pool is a named group of nodes: those that name it in their profile, and those
// that satisfy its rule. The rule is everything but ID; a pool without any has
// explicit members only.
type Pool struct {
	ID string `json:"id" koanf:"id"`
	// SourceLanguages and TargetLanguages are BCP 47 tags. As a rule: where one is
	// listed, the node must handle at least one of its entries. As coverage: the
	// jobs whose languages are found here are restricted to this pool; see the
	// package comment.
	SourceLanguages []string `json:"source_languages,omitempty" koanf:"source_languages"`
	TargetLanguages []string `json:"target_languages,omitempty" koanf:"target_languages"`
	// Services must all be installed on a node that joins by rule.
	Services []string `json:"services,omitempty" koanf:"services"`
	// Labels must all be on it with these very values.
	Labels map[string]string `json:"labels,omitempty" koanf:"labels"`
}

// Pools is the configuration of all pools; for jobs that state a language the
// order is the order of preference. Nil means that none is configured. It must
// not change while it is in use.
type Pools []Pool

// Members returns the pools that n is in: the configured ones in their order,
// then those that only n's profile names. A job that names one of these, and no
// other, finds n in its pool.
func (ps Pools) Members(n *freeslot.Node) []string {
	p := Compile(n)
	var ids []string
	for i := range ps {
		if newRule(&ps[i]).admits(p) {
			ids = append(ids, ps[i].ID)
		}
	}
	for _, id := range n.Pools {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// named returns the rule of the pool with this id.
func (ps Pools) named(id string) *rule {
	for i := range ps {
		if ps[i].ID == id {
			return newRule(&ps[i])
		}
	}
	return newRule(&Pool{ID: id})
}

// covering returns the rules of the pools that cover the folded languages, in
// order; "" is a language that the job does not state.
func (ps Pools) covering(source, target string) []*rule {
	if source == "" && target == "" {
		return nil
	}
	var rules []*rule
	for i := range ps {
		if ps[i].covers(source, target) {
			rules = append(rules, newRule(&ps[i]))
		}
	}
	return rules
}

func (p *Pool) covers(source, target string) bool {
	return (source == "" || newLanguages(p.SourceLanguages).find(source)) &&
		(target == "" || newLanguages(p.TargetLanguages).find(target))
}

// rule is a Pool prepared for telling its members.
type rule struct {
	pool           *Pool
	source, target []string
	explicit       bool // explicit members only
}

func newRule(p *Pool) *rule {
	return &rule{
		pool:   p,
		source: newLanguages(p.SourceLanguages).tags,
		target: newLanguages(p.TargetLanguages).tags,
		explicit: len(p.SourceLanguages) == 0 && len(p.TargetLanguages) == 0 &&
			len(p.Services) == 0 && len(p.Labels) == 0,
	}
}

func (r *rule) admits(p *Profile) bool {
	if p.pools.has(r.pool.ID) {
		return true
	}
	return !r.explicit &&
		p.hasServices(r.pool.Services) &&
		(len(r.source) == 0 || p.source.findAny(r.source)) &&
		(len(r.target) == 0 || p.target.findAny(r.target)) &&
		p.hasLabels(r.pool.Labels)
}
