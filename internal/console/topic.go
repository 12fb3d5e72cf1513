package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// period is the time between two computations of a topic.
	period = 2 * time.Second
	// maxTopic is the longest name of a topic, in bytes. It has room for a lock's key, or for a
	// service and its instance.
	maxTopic = 700
	// queueCalls, findingCalls, jobCalls, explainCalls and nodeCalls bound the calls of one answer to
	// a cell, while nothing is read in several parts.
	queueCalls   = 2
	findingCalls = 4
	jobCalls     = 1
	explainCalls = 3
	nodeCalls    = 1
)

// kind describes topics that are computed in the same way.
type kind struct {
	// needs lists the calls that a viewer must be allowed to make.
	needs []string
	// argument is true for topics with a name behind a colon.
	argument bool
	// asks is true for a topic that needs calls to Redis.
	asks bool
	// named is true if tenants' operators of one tenant see different things, by their names.
	named bool
	// every is the time between two computations; 0 means period.
	every time.Duration
	// by names the topic, without viewers of its own, whose result this one contains.
	by string
	// compute returns the topic's data, and how many calls it made to a cell at most.
	compute func(ctx context.Context, h *hub, t *topic) (data any, calls int, err error)
	// changes takes the place of compute for a topic that tells changes. It returns a frame with what
	// has changed since a change, 0 for a viewer who has nothing, the change up to which that is
	// all, and whether it is nothing. The caller holds hub.mu.
	changes func(h *hub, head frame, since uint64) (text []byte, through uint64, empty bool)
}

// The names of topics, and of findings, which are a part of the overview alone.
const (
	overviewTopic = "overview"
	historyTopic  = "history"
	jobTopic      = "job"
	queuesTopic   = "queues"
	nodeTopic     = "node"
	nodesTopic    = "nodes"
	fleetTopic    = "fleet"
	findingsTopic = "findings"
)

// kinds are all kinds of topics, by name.
var kinds = map[string]*kind{
	overviewTopic: {needs: []string{"list-findings", "list-nodes"}, by: findingsTopic, compute: overview},
	historyTopic:  {needs: []string{"get-history"}, compute: history},
	jobTopic:      {needs: []string{"get-job"}, argument: true, asks: true, compute: job},
	queuesTopic:   {needs: []string{"list-queues"}, asks: true, compute: queues},
	nodeTopic:     {needs: []string{"get-node"}, argument: true, asks: true, compute: node},
	nodesTopic:    {needs: []string{"list-nodes"}, changes: nodesFrame},
	fleetTopic:    {needs: []string{"list-nodes"}, changes: fleetFrame, every: fleetPeriod},
}

// findings is no topic for viewers, and wanted as long as the overview.
var findings = &kind{asks: true, compute: computeFindings}

// topicKey names what is computed once: a topic, for callers who see the same of it.
type topicKey struct {
	name string
	// tenant owns what is shown; empty: all tenants.
	tenant string
	// caller is the name of a caller who sees what others of the tenant do not; empty for all of it.
	caller string
	// explains is true for callers who may also have the explanation of a job.
	explains bool
}

// parseTopic returns the key of a topic for a caller, and its kind. The error is for the page.
func parseTopic(name string, who *identity.Principal) (topicKey, *kind, *freeslot.Error) {
	first, argument, colon := strings.Cut(name, ":")
	k := cmp.Or(kinds[first], listKinds[first], serviceKinds[first], systemKinds[first])
	if k == nil || colon != k.argument || k.argument && argument == "" || len(name) > maxTopic {
		return topicKey{}, nil, freeslot.Invalid("want", "names %.80q, which is no topic", name)
	}
	key := topicKey{name: name}
	for _, call := range k.needs {
		grant, err := who.May(call)
		if err != nil {
			return topicKey{}, nil, wire.AsError(err)
		}
		if grant == identity.Own {
			key.tenant = who.Tenant
		}
		if grant == identity.Own && k.named {
			key.caller = who.Name
		}
	}
	if first == scheduleTopic && strings.HasPrefix(argument, ":") {
		key.tenant = who.Tenant
	}
	if first == jobTopic {
		key.explains = who.Role.GrantOf("explain-submitted-job") != identity.None
	}
	return key, k, nil
}

// answerOf returns the answer of a route, or its refusal.
func (h *hub) answerOf(ctx context.Context, t *topic, target string) (json.RawMessage, error) {
	status, body := h.sources.Ask(ctx, &t.who, target)
	if status == http.StatusOK {
		return body, nil
	}
	var refusal struct {
		Code    freeslot.Code `json:"code"`
		Message string        `json:"message"`
	}
	if err := json.Unmarshal(body, &refusal); err != nil {
		return nil, err
	}
	return nil, &freeslot.Error{Code: refusal.Code, Message: refusal.Message}
}

// newest is the route of the last points of the history, which this replica has in memory. A page
// that has missed more asks for them itself.
const newest = "/v1/history?since=10s"

func history(ctx context.Context, h *hub, t *topic) (any, int, error) {
	data, err := h.answerOf(ctx, t, newest)
	return data, 0, err
}

func queues(ctx context.Context, h *hub, t *topic) (any, int, error) {
	data, err := h.answerOf(ctx, t, "/v1/queues")
	return data, queueCalls, err
}

func node(ctx context.Context, h *hub, t *topic) (any, int, error) {
	_, id, _ := strings.Cut(t.key.name, ":")
	data, err := h.answerOf(ctx, t, "/v1/nodes/"+url.PathEscape(id))
	return data, nodeCalls, err
}

// waits are the states of jobs whose explanation helps.
var waits = []freeslot.State{
	freeslot.StateScheduled, freeslot.StateWaiting, freeslot.StateMoving, freeslot.StateRetryWait,
}

func job(ctx context.Context, h *hub, t *topic) (any, int, error) {
	_, id, _ := strings.Cut(t.key.name, ":")
	target := "/v1/jobs/" + url.PathEscape(id)
	status, err := h.answerOf(ctx, t, target)
	if err != nil {
		return nil, jobCalls, err
	}
	var now struct {
		State freeslot.State `json:"state"`
	}
	if err := json.Unmarshal(status, &now); err != nil {
		return nil, jobCalls, err
	}
	data := struct {
		Job     json.RawMessage `json:"job"`
		Explain json.RawMessage `json:"explain"`
	}{Job: status}
	if !t.key.explains || !slices.Contains(waits, now.State) {
		return data, jobCalls, nil
	}
	// A job that began in between, or whose cell is slow, is shown without an explanation.
	if why, err := h.answerOf(ctx, t, target+"/explain"); err == nil {
		data.Explain = why
	}
	return data, jobCalls + explainCalls, nil
}

// findingsNow is a report in the overview.
type findingsNow struct {
	AtMS    int64             `json:"at_ms"`
	Items   []finding.Finding `json:"items"`
	Unknown []string          `json:"unknown,omitempty"`
	// replicas are the running replicas; nil if Redis does not tell.
	replicas []Replica
}

func computeFindings(ctx context.Context, h *hub, t *topic) (any, int, error) {
	report := h.sources.Findings()
	found := findingsNow{AtMS: report.AtMS, Items: report.Findings, Unknown: report.Unknown}
	var running struct{ Replicas []Replica }
	if list, err := h.answerOf(ctx, t, "/v1/replicas/status"); err == nil && json.Unmarshal(list, &running) == nil {
		found.replicas = running.Replicas
	}
	return found, findingCalls, nil
}

// Fleet is what a replica knows of the fleet without asking.
type Fleet struct {
	// Nodes counts the nodes by state: online, draining, silent.
	Nodes map[string]int `json:"nodes"`
	// Replicas are the replicas that run.
	Replicas []Replica `json:"replicas"`
	// Cells are the cells in their order.
	Cells []Cell `json:"cells"`
}

// Replica is a scheduler.
type Replica struct {
	Name  string `json:"name"`
	Build string `json:"build,omitempty"`
	Ready bool   `json:"ready"`
}

// Cell tells whether a cell answers.
type Cell struct {
	Cell int  `json:"cell"`
	OK   bool `json:"ok"`
	// SinceMS is when a cell that does not answer answered last; 0 for others.
	SinceMS int64 `json:"since_ms,omitempty"`
}

func overview(_ context.Context, h *hub, _ *topic) (any, int, error) {
	found, replicas := h.lastFindings()
	fleet := h.sources.Fleet()
	fleet.Replicas = merge(replicas, fleet.Replicas)
	return struct {
		// Findings is null until the first look has ended.
		Findings *findingsNow `json:"findings"`
		Fleet
	}{found, fleet}, 0, nil
}

// merge puts what a replica knows of itself into the list of all.
func merge(all, own []Replica) []Replica {
	all = slices.Clone(all)
	for _, r := range own {
		if i := slices.IndexFunc(all, func(o Replica) bool { return o.Name == r.Name }); i >= 0 {
			all[i] = r
		} else {
			all = append(all, r)
		}
	}
	return all
}
