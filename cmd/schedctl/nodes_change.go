package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// nodeChange is what the API says became of a node.
type nodeChange struct {
	ID     string   `json:"node_id"`
	Status string   `json:"status"`
	Jobs   []string `json:"jobs,omitempty"`
}

type drainCmd struct {
	ID string `arg:"" name:"node-id" help:"The node."`
}

// Run has a node get no more jobs.
func (c *drainCmd) Run(a *app) error { return changeNode(a, http.MethodPost, c.ID, "/drain") }

type undrainCmd struct {
	ID string `arg:"" name:"node-id" help:"The node."`
}

// Run has a drained node get jobs again.
func (c *undrainCmd) Run(a *app) error { return changeNode(a, http.MethodPost, c.ID, "/undrain") }

type removeCmd struct {
	ID string `arg:"" name:"node-id" help:"The node: one that is silent, or was imported."`
}

// Run forgets a node without an agent.
func (c *removeCmd) Run(a *app) error { return changeNode(a, http.MethodDelete, c.ID, "") }

func changeNode(a *app, method, id, action string) error {
	defer a.api.close()
	var change nodeChange
	if err := a.api.call(a.ctx, method, "/v1/nodes/"+url.PathEscape(id)+action, nil, nil, 0, &change); err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(change)
	}
	text := change.ID + " is " + change.Status
	if change.Status == "online" { // which it is once its agent says so, of whom nothing is known here
		text = change.ID + " is not drained any more"
	}
	if len(change.Jobs) > 0 {
		text += "; its jobs go to their next attempts: " + strings.Join(change.Jobs, " ")
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
