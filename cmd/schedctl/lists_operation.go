package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/freeslot/freeslot/internal/namelist/server"
)

// startFlags are the flags of commands that begin an operation and do not wait for its end.
type startFlags struct {
	oneList
	whyFlags
}

func (c *startFlags) start(a *app, what string, body any) error {
	var out server.ListStarted
	if err := a.call(http.MethodPost, c.path()+"/"+what, nil, body, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println(
		"%s of list %s began: version %d, operation %s", what, c.List, out.Operation.Version, out.Operation.ID,
	)
}

type listsExpandCmd struct{ startFlags }

// Run expands a list.
func (c *listsExpandCmd) Run(a *app) error {
	return c.start(a, "expand", server.WhyRequest{ByWhom: c.by()})
}

type listsMoveCmd struct {
	startFlags
	To string `required:"" placeholder:"NAME" help:"The list server, of lists.servers."`
}

// Run moves a list.
func (c *listsMoveCmd) Run(a *app) error {
	return c.start(a, "move", server.MoveRequest{Server: c.To, ByWhom: c.by()})
}

type listsFreezeCmd struct{ startFlags }

// Run freezes a list.
func (c *listsFreezeCmd) Run(a *app) error {
	return a.done(
		a.call(http.MethodPost, c.path()+"/freeze", nil, server.WhyRequest{ByWhom: c.by()}, nil), "list %s is frozen", c.List,
	)
}

type listsUnfreezeCmd struct{ oneList }

// Run takes a freeze back.
func (c *listsUnfreezeCmd) Run(a *app) error {
	return a.done(a.call(http.MethodPost, c.path()+"/unfreeze", nil, nil, nil), "list %s can change again", c.List)
}

type listsCancelCmd struct{ startFlags }

// Run cancels the running operation.
func (c *listsCancelCmd) Run(a *app) error {
	var l server.NameList
	if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
		return err
	}
	if l.Operation == nil {
		return fmt.Errorf("nothing runs on list %s", c.List)
	}
	body := server.CancelRequest{Operation: l.Operation.ID, ByWhom: c.by()}
	return a.done(
		a.call(http.MethodPost, c.path()+"/cancel", nil, body, nil), "%s of list %s is cancelled", l.Operation.Kind, c.List,
	)
}

type listsRmCmd struct {
	oneList
	Force bool   `help:"Also while live clients use it. Of a list that is being deleted: forget its keys whose list server is not there."`
	Note  string `help:"Why."`
}

// Run deletes a list.
func (c *listsRmCmd) Run(a *app) error {
	query := url.Values{}
	if c.Force {
		query.Set("force", "true")
	}
	if c.Note != "" {
		query.Set("note", c.Note)
	}
	var out server.ListDeleted
	if err := a.call(http.MethodDelete, c.path(), query, nil, &out); err != nil {
		return err
	}
	for _, left := range out.Left {
		a.warn("keys of list %s stay: %s", c.List, left)
	}
	return a.done(nil, "list %s is deleted: clients answer unknown from now on", c.List)
}
