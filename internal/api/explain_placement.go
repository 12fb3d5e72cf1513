package api

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/wire"
)

// Fleet is the state from which choices are made; *cache.Cache implements it.
type Fleet interface {
	// AllNodes returns the live figures of all nodes, ordered by id. The slice belongs to the
	// caller.
	AllNodes() []*selection.Node
	// Node returns the live figures of one node; false if there is none.
	Node(id string) (*selection.Node, bool)
	// Config returns the configuration by which nodes are chosen. It must not be changed.
	Config() *selection.Config
	// Now returns the time by the clock of the nodes' figures.
	Now() int64
	// SilenceLimit returns how long a node may be silent and still be chosen.
	SilenceLimit() time.Duration
	// Skip returns the cells that choices leave out now.
	Skip() selection.CellMask
	// MayReturn reports whether a node that fits the job may be back soon, though none is known.
	MayReturn(job *freeslot.Job) bool
}

// explainPath is the path of explanations of a requirement; see registerExplainJob for jobs.
const explainPath = "/v1/explain"

// DefaultExplained and MaxExplained bound the nodes that an explanation lists.
const (
	DefaultExplained = 100
	MaxExplained     = 1000
)

// ExplainRequest is the part of a job that decides where it goes.
type ExplainRequest struct {
	// Service and the rest are documented in their tags.
	Service     string               `json:"service" doc:"The job's service."`
	Requirement freeslot.Requirement `json:"requirement,omitzero" doc:"The job's requirement."`
	Slots       int                  `json:"slots,omitempty" minimum:"0" maximum:"65536" doc:"How many slots the job takes; absent means 1."`
	AffinityKey string               `json:"affinity_key,omitempty" doc:"The job's affinity key."`
	Limit       *int                 `json:"limit,omitempty" minimum:"0" maximum:"1000" default:"100" doc:"At most this many nodes are listed."`
}

// Explanation lists the nodes to which a job could go, and the reasons against the others.
type Explanation struct {
	selection.Explanation
	// Candidates is documented in its tag.
	Candidates []string `json:"candidates" doc:"The nodes that would be offered the job if it were submitted now, in this order. The choice is random, asked again it can be another one; and each of several replicas prefers a part of the nodes, which is left out here."`
	Omitted    int      `json:"omitted" doc:"How many nodes the list leaves out because of its limit."`
	Outcome    Outcome  `json:"outcome" enum:"accepted,waits,no_matching_node,unavailable" doc:"What would become of a submit now, as far as this replica knows: accepted, and placed at once; waits, for one of the nodes that fit or for a node of an expected pool; or the code of the refusal. Where jobs of the same class wait already, one that fits a free node waits behind them."`
	// ClassID and the rest are documented in their tags.
	ClassID  string `json:"class_id" doc:"The id of the class, as listings show it."`
	Waiting  *int   `json:"waiting,omitempty" doc:"How many jobs of the class wait; absent where the store did not say in time."`
	PausedBy string `json:"paused_by,omitempty" doc:"The service or the class that is paused, so that no such job begins; of paused pools the nodes tell."`
	Freshness
}

// Outcome is the outcome of a submit: one of the constants, or the code of the refusal.
type Outcome string

// The outcomes that are not refusals.
const (
	// OutcomeAccepted: the job is placed at once.
	OutcomeAccepted Outcome = "accepted"
	// OutcomeWaits: the job is accepted and waits for one of the nodes that fit, or for a node of an
	// expected pool to start.
	OutcomeWaits Outcome = "waits"
)

type (
	explainInput  struct{ RawBody []byte }
	explainOutput struct{ Body Explanation }
)

func (s *Server) registerExplain(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "explain-job", Method: http.MethodPost, Path: explainPath, Tags: []string{"nodes"},
		Summary: "Explain where a job could go",
		Description: "Nothing is submitted. The answer counts all nodes and lists those that the job could go to, by " +
			"tier, then those that fit and cannot take it now, " +
			"then the others, with the first thing that speaks against each. It is what the cache of this replica says.",
	}, handleBounded(s, "explain", s.explain))
}

func (s *Server) explain(ctx context.Context, in *explainInput) (*explainOutput, error) {
	job, limit, err := decodeExplain(in.RawBody)
	if err != nil {
		return nil, err
	}
	return &explainOutput{Body: s.placement(ctx, job, limit)}, nil
}

// placement explains where the job could go now, and lists limit nodes.
func (s *Server) placement(ctx context.Context, job *freeslot.Job, limit int) Explanation {
	nodes, cfg := s.deps.Nodes.AllNodes(), s.deps.Nodes.Config()
	q := selection.Query{
		Want: dispatch.DefaultCandidates, Slots: job.SlotCount(), Now: s.deps.Nodes.Now(),
		SilenceLimit: s.deps.Nodes.SilenceLimit(),
		AffinityKey:  job.AffinityKey, Skip: s.deps.Nodes.Skip(),
	}
	out := Explanation{
		Explanation: selection.Explain(nodes, cfg, job.Service, &job.Requirement, &q),
		Candidates:  []string{},
	}
	health := s.deps.Nodes.Health()
	out.Freshness = fleetFreshness(&health)
	out.Outcome = outcome(&out.Explanation, nodes, q.Skip|away(&health))
	if out.Outcome == Outcome(freeslot.CodeNoMatchingNode) && s.deps.Nodes.MayReturn(job) {
		out.Outcome = Outcome(freeslot.CodeUnavailable)
	}
	class := selection.NewClass(nodes, cfg, job.Service, &job.Requirement)
	out.ClassID, out.PausedBy, out.Waiting = class.ID(), class.Paused(), s.length(ctx, job)
	for _, n := range class.Choose(make([]*selection.Node, 0, q.Want), &q, selection.NewSource(rand.Uint64())) {
		out.Candidates = append(out.Candidates, n.ID())
	}
	out.shorten(limit)
	s.explainDraining(out.Nodes)
	return out
}

// away returns the cells that do not answer.
func away(h *cache.Health) (cells selection.CellMask) {
	for i := range h.Cells {
		if h.Cells[i].Stale || h.Cells[i].Unreachable {
			cells = cells.With(i)
		}
	}
	return cells
}

// outcome decides as the dispatcher does. The explanation has the nodes in the same order.
func outcome(e *selection.Explanation, nodes []*selection.Node, away selection.CellMask) Outcome {
	takers, reachable := 0, 0
	for i := range e.Nodes {
		x := &e.Nodes[i]
		switch {
		case !x.Fits || nodes[i].Draining():
			continue
		case x.Reason == "" && !away.Has(x.Cell):
			return OutcomeAccepted
		case !away.Has(x.Cell):
			reachable++
		}
		takers++
	}
	switch {
	case len(e.Expected) > 0:
		return OutcomeWaits
	case e.Fits == 0 && away == 0:
		return Outcome(freeslot.CodeNoMatchingNode)
	case e.Fits == 0, takers > 0 && reachable == 0:
		return Outcome(freeslot.CodeUnavailable)
	default:
		return OutcomeWaits
	}
}

// explainDraining adds the reason that nodes take no new jobs, unless their agents are stopping.
func (s *Server) explainDraining(nodes []selection.NodeExplanation) {
	for i := range nodes {
		if nodes[i].Reason != selection.ReasonDraining {
			continue
		}
		switch state, ok := s.deps.Nodes.State(nodes[i].Node); {
		case !ok:
		case state.Epoch == cell.ImportEpoch:
			nodes[i].Detail = "imported, its agent has not started"
		case state.Status == freeslot.StatusDrained:
			nodes[i].Detail = "drained by an operator, takes no new jobs"
		}
	}
}

// decodeExplain decodes the body as a part of a job.
func decodeExplain(data []byte) (job *freeslot.Job, limit int, err error) {
	part, stated, refused := wire.DecodeExplain(bytes.TrimPrefix(data, []byte("\ufeff")))
	if refused != nil {
		return nil, 0, refused
	}
	limit = DefaultExplained
	if stated != nil {
		limit = *stated
	}
	if limit < 0 || limit > MaxExplained {
		return nil, 0, freeslot.Invalid("limit", "is %d, expected 0 to %d", limit, MaxExplained)
	}
	return &part, limit, part.Validate("job")
}

// shorten puts the nodes that matter most first, and leaves out all beyond limit.
func (e *Explanation) shorten(limit int) {
	rank := func(n *selection.NodeExplanation) int {
		switch {
		case n.Reason == "":
			return 0
		case n.Fits:
			return 1
		default:
			return 2
		}
	}
	slices.SortStableFunc(e.Nodes, func(a, b selection.NodeExplanation) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Tier, b.Tier), strings.Compare(a.Node, b.Node))
	})
	e.Omitted = max(len(e.Nodes)-limit, 0)
	e.Nodes = e.Nodes[:min(len(e.Nodes), limit)]
}
