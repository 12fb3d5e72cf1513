package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/figure"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/wire"
)

// NodeQuery selects the nodes of a listing; its fields are documented in their tags. The zero value
// takes all nodes.
type NodeQuery struct {
	Status     string   `query:"status" enum:"online,draining,drained" doc:"Only nodes with this status."`
	Pool       string   `query:"pool" maxLength:"64" doc:"Only members of this pool."`
	Services   []string `query:"service,explode" maxItems:"64" doc:"Only nodes with this service, optionally in a range of versions: asr@>=1.2 <2; may be repeated."`
	Features   []string `query:"feature,explode" maxItems:"64" doc:"Only nodes with this feature; may be repeated."`
	LabelRules []string `query:"label_rule,explode" maxItems:"32" doc:"Only nodes for whose labels this holds: gpu in A100,H100 or ram ge 64; the operators are those of a job's label_rules; may be repeated."`
	Figures    []string `query:"figure,explode" maxItems:"32" doc:"Only nodes for whose figures this holds: cpu.usage < 0.5; the operators are <, <=, >, >=, == and !=. A figure that a node does not have fails all but !=; may be repeated."`
	MaxAgeMS   int64    `query:"max_age_ms" minimum:"1" maximum:"2592000000" doc:"Leave out nodes that were silent for longer, in milliseconds. It changes nothing for the nodes."`
}

// nodeFilter is a parsed NodeQuery.
type nodeFilter struct {
	status freeslot.Status
	// fits is nil if the query does not ask for a profile.
	fits    func(*selection.Profile) bool
	figures []figure.Comparison
	maxAge  time.Duration
}

func (q *NodeQuery) filter(cfg *selection.Config) (*nodeFilter, error) {
	f := &nodeFilter{status: freeslot.Status(q.Status), maxAge: time.Duration(q.MaxAgeMS) * time.Millisecond}
	r := freeslot.Requirement{Pool: q.Pool, Services: q.Services, Features: q.Features}
	if q.Pool != "" {
		if err := freeslot.ValidateName("pool", q.Pool); err != nil {
			return nil, err
		}
	}
	for i, entry := range q.Services {
		if err := freeslot.ValidateService(at("service", i), entry); err != nil {
			return nil, err
		}
	}
	for i, name := range q.Features {
		if err := freeslot.ValidateName(at("feature", i), name); err != nil {
			return nil, err
		}
	}
	for i, text := range q.LabelRules {
		rule, err := wire.ParseLabelRule(at("label_rule", i), text)
		if err == nil {
			err = rule.Validate(at("label_rule", i))
		}
		if err != nil {
			return nil, err
		}
		r.LabelRules = append(r.LabelRules, rule)
	}
	for i, text := range q.Figures {
		c, err := figure.Parse(at("figure", i), text)
		if err != nil {
			return nil, err
		}
		f.figures = append(f.figures, c)
	}
	if q.Pool != "" || len(r.Services)+len(r.Features)+len(r.LabelRules) > 0 {
		f.fits = cfg.Filter(&r)
	}
	return f, nil
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// takes reports whether a listing includes the node.
func (s *Server) takes(f *nodeFilter, h *cache.Health, n *cell.NodeState) bool {
	if f.status != "" && f.status != shownStatus(n) {
		return false
	}
	if f.maxAge > 0 && s.silentFor(h, n.Node.ID, f.maxAge) {
		return false
	}
	if f.fits != nil {
		live, ok := s.deps.Nodes.Node(n.Node.ID) // false if the node has just left
		if !ok || !f.fits(live.Profile()) {
			return false
		}
	}
	return f.holds(n.Resources)
}

// holds reports whether all comparisons hold for the figures in a node's resources.
func (f *nodeFilter) holds(resources json.RawMessage) bool {
	if len(f.figures) == 0 {
		return true
	}
	var of struct {
		Metrics json.RawMessage `json:"metrics"`
	}
	_ = json.Unmarshal(resources, &of) // a node without figures
	figures := figure.Flatten(of.Metrics)
	for i := range f.figures {
		if !f.figures[i].Holds(figures) {
			return false
		}
	}
	return true
}
