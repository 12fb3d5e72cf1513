package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/plural"
)

// nodesGroup is the command "nodes". Without a further word it lists them.
type nodesGroup struct {
	Show    nodesCmd   `cmd:"" aliases:"ls" default:"withargs" help:"List nodes, or show one."`
	Drain   drainCmd   `cmd:"" help:"Give nodes no more jobs, until undrain, and wait for those that run."`
	Undrain undrainCmd `cmd:"" help:"Give a drained node jobs again."`
	Remove  removeCmd  `cmd:"" help:"Forget a node that has no agent."`
	Token   tokenCmd   `cmd:"" help:"Make a token by which a node's agent comes in through a replica."`
	Import  importCmd  `cmd:"" help:"Copy a node list into Redis, and verify the copy."`
}

type nodesCmd struct {
	ID      string `arg:"" optional:"" name:"node-id" help:"Show only this node, with all details."`
	Checked bool   `help:"With a node id: compare with the store first."`

	Status    string        `enum:",online,draining,drained" default:"" placeholder:"STATUS" help:"Only nodes with this status: online, draining or drained."`
	Pool      string        `placeholder:"POOL" help:"Only members of this pool."`
	Service   []string      `sep:"none" placeholder:"SERVICE" help:"Only nodes with this service, with an optional range of versions, such as 'asr@>=1.2 <2'. Can be repeated."`
	Feature   []string      `sep:"," placeholder:"NAME" help:"Only nodes with this feature. Can be repeated."`
	LabelRule []string      `sep:"none" placeholder:"RULE" help:"Only nodes for whose labels this holds, such as 'gpu in A100,H100' or 'ram_gb ge 64'. Can be repeated."`
	Figure    []string      `sep:"none" placeholder:"COMPARISON" help:"Only nodes for whose figures this holds, such as 'cpu.usage < 0.5'. Can be repeated."`
	MaxAge    time.Duration `placeholder:"DURATION" help:"Leave out nodes that were silent for longer."`
	Order     string        `enum:",id,removal" default:"" placeholder:"ORDER" help:"id, the default, or removal: first the nodes whose removal loses the least work."`
}

// Help is shown below the flags.
func (nodesCmd) Help() string {
	return `Examples:
  schedctl nodes --pool eu --status online --figure "cpu.usage < 0.5"
  schedctl nodes --label-rule "gpu in A100,H100" --max-age 5s
  schedctl nodes ls --pool gpu --order removal
  schedctl nodes node-1 --checked`
}

// query asks for the nodes that the flags name.
func (c *nodesCmd) query() url.Values {
	query := url.Values{}
	for name, values := range map[string][]string{
		"status": {c.Status}, "pool": {c.Pool}, "service": c.Service, "feature": c.Feature, "label_rule": c.LabelRule,
		"figure": c.Figure, "order": {c.Order},
	} {
		for _, value := range values {
			if value != "" {
				query.Add(name, value)
			}
		}
	}
	if c.MaxAge != 0 {
		query.Set("max_age_ms", strconv.FormatInt(c.MaxAge.Milliseconds(), 10))
	}
	return query
}

// Run lists the nodes as one replica sees them.
func (c *nodesCmd) Run(a *app) error {
	query := c.query()
	if c.ID != "" {
		if len(query) > 0 {
			return usage("a node id takes no filters")
		}
		return c.one(a)
	}
	if c.Checked {
		return usage("--checked needs a node id")
	}
	nodes, err := a.api.nodes(a.ctx, query)
	if err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(nodes)
	}
	a.warnDegraded(nodes...)
	return table(a.out, nodeRows(nodes))
}

func (c *nodesCmd) one(a *app) error {
	var n api.NodeStatus
	query := url.Values{}
	if c.Checked {
		query.Set("checked", "true")
	}
	if err := a.call(http.MethodGet, "/v1/nodes/"+url.PathEscape(c.ID), query, nil, &n); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(n)
	}
	a.warnDegraded(n)
	rows, told := nodeRows([]api.NodeStatus{n}), toldBy(n.Resources)
	details := make([][]string, 0, len(rows[0])+6)
	for i, name := range []string{
		"node", "status", "slots", "services", "understands", "produces", "pools", "labels", "heartbeat", "via",
	} {
		details = append(details, []string{name, rows[1][i]})
	}
	if len(n.Services) > 0 {
		details[3][1] = describe(n.Services)
	}
	if names := features(n.Features); names != "" {
		details = append(details, []string{"features", names})
	}
	if c := n.Connection; c != nil {
		roundTrip := ""
		if c.RoundTripMS > 0 {
			roundTrip = fmt.Sprintf("%.3g ms", c.RoundTripMS)
		}
		details = append(
			details, []string{"round trip", dash(roundTrip)}, []string{"agent", dash(clean(c.Version))},
			[]string{"token", clean(c.Token)},
		)
	}
	details = append(details,
		[]string{"registered", clock(n.RegisteredAtMS)},
		[]string{"epoch", n.Epoch},
		[]string{"version", fmt.Sprint(n.Version)},
		[]string{"resources", dash(string(n.Resources))},
		[]string{"taken", clock(told.AtMS)},
	)
	if told.Leaving != "" {
		details = append(details, []string{"leaving", clean(told.Leaving)})
	}
	if n.Checked != "" {
		details = append(details, []string{"checked", n.Checked})
	}
	return table(a.out, details)
}

// agentTold holds what the agent tells in a node's resources. Fields that it does not tell are
// zero.
type agentTold struct {
	// AtMS is the time at which the store took the resources in.
	AtMS int64 `json:"at_ms"`
	// Leaving is the reason for which the node leaves.
	Leaving string `json:"leaving"`
}

func toldBy(resources json.RawMessage) (told agentTold) {
	_ = json.Unmarshal(resources, &told) // an agent of another release may have other fields
	return told
}

// features returns the names of a node's features.
func features(all map[string]bool) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// describe returns all details of a node's services.
func describe(services []freeslot.Service) string {
	texts := make([]string, len(services))
	for i, s := range services {
		texts[i] = s.Name
		if s.Version != "" {
			texts[i] += " " + s.Version
		}
		if s.Endpoint != "" {
			texts[i] += " at " + s.Endpoint
		}
	}
	return clean(strings.Join(texts, ", "))
}

func nodeRows(nodes []api.NodeStatus) [][]string {
	rows := [][]string{{
		"NODE", "STATUS", "SLOTS", "SERVICES", "UNDERSTANDS", "PRODUCES", "POOLS", "LABELS", "HEARTBEAT", "VIA",
	}}
	for _, n := range nodes {
		services := make([]string, len(n.Services))
		for i, s := range n.Services {
			services[i] = s.Name
		}
		rows = append(rows, []string{
			n.ID, shownStatus(&n), fmt.Sprintf("%d/%d", n.Used, n.MaxConcurrency),
			list(services), list(n.Languages.ASR), list(n.Languages.TTS), list(memberships(&n)), labels(n.Labels),
			clock(n.LastHeartbeatMS), via(&n),
		})
	}
	return rows
}

// via returns the replica by which the node's agent is connected.
func via(n *api.NodeStatus) string {
	if n.Connection == nil {
		return dash("")
	}
	return clean(n.Connection.Replica)
}

// shownStatus returns imported or silent if the node's agent does not speak for it, because its
// last status is then of no use.
func shownStatus(n *api.NodeStatus) string {
	switch {
	case n.Epoch == cell.ImportEpoch:
		return "imported"
	case n.Silent:
		return "silent"
	default:
		return string(n.Status)
	}
}

// memberships includes the pools by rule, if the scheduler lists them.
func memberships(n *api.NodeStatus) []string {
	if n.MemberOf != nil {
		return n.MemberOf
	}
	return n.Pools
}

// warnDegraded warns when the replica only has the last state that it knew.
func (a *app) warnDegraded(nodes ...api.NodeStatus) {
	count, oldest := 0, int64(0)
	for _, n := range nodes {
		if n.Degraded {
			count, oldest = count+1, max(oldest, n.AgeMS)
		}
	}
	if count > 0 {
		a.warn(
			"degraded: Redis does not answer; what is shown of %d of %s is up to %s old", count,
			plural.Of(len(nodes), "node", "nodes"), age(oldest),
		)
	}
}
