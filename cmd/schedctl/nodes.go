package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot"
)

type nodesCmd struct {
	ID      string `arg:"" optional:"" name:"node-id" help:"Show only this node, with everything that is known of it."`
	Checked bool   `help:"With a node id: compare with the store first."`
}

// Run lists the nodes as one replica sees them.
func (c *nodesCmd) Run(a *app) error {
	defer a.api.close()
	if c.ID != "" {
		return c.one(a)
	}
	if c.Checked {
		return usage("--checked needs a node id")
	}
	nodes, err := a.api.nodes(a.ctx)
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
	var n node
	query := url.Values{}
	if c.Checked {
		query.Set("checked", "true")
	}
	if err := a.api.call(a.ctx, http.MethodGet, "/v1/nodes/"+url.PathEscape(c.ID), query, nil, 0, &n); err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(n)
	}
	a.warnDegraded(n)
	rows := nodeRows([]node{n})
	details := make([][]string, 0, len(rows[0])+5)
	for i, name := range []string{"node", "status", "slots", "services", "understands", "produces", "pools", "labels", "heartbeat"} {
		details = append(details, []string{name, rows[1][i]})
	}
	if len(n.Services) > 0 {
		details[3][1] = describe(n.Services)
	}
	details = append(details,
		[]string{"registered", clock(n.RegisteredAtMS)},
		[]string{"epoch", n.Epoch},
		[]string{"version", fmt.Sprint(n.Version)},
		[]string{"resources", dash(string(n.Resources))},
	)
	if n.Checked != "" {
		details = append(details, []string{"checked", n.Checked})
	}
	return table(a.out, details)
}

// describe is everything that a node says of its services.
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
