package main

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot/internal/api"
)

type undrainCmd struct {
	ID string `arg:"" name:"node-id" help:"The node."`
}

// Run gives a drained node jobs again.
func (c *undrainCmd) Run(a *app) error { return changeNode(a, http.MethodPost, c.ID, "/undrain", nil) }

type removeCmd struct {
	ID    string `arg:"" name:"node-id" help:"The node: one that is silent, or was imported."`
	Epoch string `name:"if-epoch" placeholder:"EPOCH" help:"Only if the node has this epoch, as show has it: one that was registered anew has another."`
}

// Run forgets a node without an agent.
func (c *removeCmd) Run(a *app) error {
	var query url.Values
	if c.Epoch != "" {
		query = url.Values{"epoch": {c.Epoch}}
	}
	return changeNode(a, http.MethodDelete, c.ID, "", query)
}

func changeNode(a *app, method, id, action string, query url.Values) error {
	change, err := a.changeNode(method, id, action, query)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(change)
	}
	return a.printChange(&change)
}

func (a *app) changeNode(method, id, action string, query url.Values) (change api.NodeChange, err error) {
	err = a.call(method, "/v1/nodes/"+url.PathEscape(id)+action, query, nil, &change)
	return change, err
}

// printChange says for people what was done.
func (a *app) printChange(change *api.NodeChange) error {
	text := change.ID + " is " + change.Status
	if change.Status == "online" { // its agent decides whether it is online
		text = change.ID + " is not drained any more"
	}
	if len(change.Jobs) > 0 {
		text += "; its jobs go to their next attempts: " + strings.Join(change.Jobs, " ")
	}
	return a.println("%s", text)
}
