package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/server"
)

const (
	requestsPath     = "/v1/list-requests"
	applicationsPath = "/v1/list-applications"
)

// pendingError says that nothing was changed yet.
type pendingError struct{ server.Pending }

func (e *pendingError) Error() string { return e.Message }

// pendingOf returns the error of an answer about a change that waits for approval, or nil.
func pendingOf(status int, data []byte) error {
	var p server.Pending
	if status != http.StatusAccepted || json.Unmarshal(data, &p) != nil || p.Code != server.PendingCode {
		return nil
	}
	return &pendingError{p}
}

type listsRequestsCmd struct {
	Ls      requestsLsCmd      `cmd:"" help:"List changes that wait for approval."`
	Show    requestsShowCmd    `cmd:"" help:"Show a request and its change."`
	Approve requestsApproveCmd `cmd:"" help:"Approve a request of somebody else: its change is made."`
	Reject  requestsRejectCmd  `cmd:"" help:"Reject a request, or withdraw your own."`
}

type requestsLsCmd struct {
	All bool `help:"Also decided, lapsed and outdated ones."`
}

// Run lists requests.
func (c *requestsLsCmd) Run(a *app) error {
	var out server.ListRequests
	query := url.Values{}
	if !c.All {
		query.Set("open", "true")
	}
	if err := a.call(http.MethodGet, requestsPath, query, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Requests)
	}
	rows := [][]string{{"REQUEST", "STATE", "WHAT", "BY", "NOTE", "AT", "UNTIL", "DECIDED BY", "COMMENT"}}
	for i := range out.Requests {
		rows = append(rows, requestRow(&out.Requests[i]))
	}
	return table(a.out, rows)
}

func requestRow(r *namelist.ChangeRequest) []string {
	return []string{
		r.ID, string(r.State), r.Summary, r.Author, dash(r.Note), clock(r.AtMS), clock(r.UntilMS), dash(r.DecidedBy),
		dash(r.Comment),
	}
}

// oneRequest names a request.
type oneRequest struct {
	Request string `arg:"" help:"Id of the request."`
}

func (c *oneRequest) path() string { return requestsPath + "/" + escaped(c.Request) }

type requestsShowCmd struct{ oneRequest }

// Run shows a request.
func (c *requestsShowCmd) Run(a *app) error {
	var r namelist.ChangeRequest
	if err := a.call(http.MethodGet, c.path(), nil, nil, &r); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	if err := table(a.out, [][]string{
		{"REQUEST", "STATE", "WHAT", "BY", "NOTE", "AT", "UNTIL", "DECIDED BY", "COMMENT"}, requestRow(&r),
	}); err != nil {
		return err
	}
	if err := a.println("digest %s", r.Digest); err != nil || len(r.Change) == 0 {
		return err
	}
	if r.Kind == namelist.ChangeChain {
		return a.printChainChange(r.Change)
	}
	text, err := json.MarshalIndent(r.Change, "", "  ")
	if err != nil {
		return err
	}
	return a.println("%s", text)
}

// printChainChange prints what a request does with a chain: what differs from the version that the
// change was made from, and the document.
func (a *app) printChainChange(text json.RawMessage) error {
	var change struct {
		What string
		Put  namelist.ChainPut
	}
	if err := json.Unmarshal(text, &change); err != nil {
		return err
	}
	put := &change.Put
	of := oneChain{put.Chain}
	if err := a.println("%s chain %s, made from version %d", change.What, put.Chain, put.Seen); err != nil {
		return err
	}
	if put.Document == "" {
		return nil
	}
	if put.Seen > 0 {
		if err := of.printDiff(a, put.Seen, []byte(put.Document)); err != nil {
			return err
		}
	}
	return a.printJSON(json.RawMessage(put.Document))
}

type requestsApproveCmd struct {
	oneRequest
	Digest  string `placeholder:"DIGEST" help:"The digest that you have seen (default: the request's now)."`
	Comment string `help:"Why."`
}

// Run approves a request.
func (c *requestsApproveCmd) Run(a *app) error {
	if c.Digest == "" {
		var r namelist.ChangeRequest
		if err := a.call(http.MethodGet, c.path(), nil, nil, &r); err != nil {
			return err
		}
		c.Digest = r.Digest
	}
	var r namelist.ChangeRequest
	body := server.ApproveRequest{Digest: c.Digest, Comment: c.Comment}
	if err := a.call(http.MethodPost, c.path()+"/approve", nil, body, &r); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	return a.println("approved: %s", r.Summary)
}

type requestsRejectCmd struct {
	oneRequest
	Comment string `help:"Why."`
}

// Run rejects a request.
func (c *requestsRejectCmd) Run(a *app) error {
	var r namelist.ChangeRequest
	if err := a.call(
		http.MethodPost, c.path()+"/reject", nil, server.RejectRequest{Comment: c.Comment}, &r,
	); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(r)
	}
	return a.println("%s: %s", r.State, r.Summary)
}

type listsApplicationsCmd struct {
	Ls    applicationsLsCmd    `cmd:"" help:"List the applications."`
	Apply applicationsApplyCmd `cmd:"" help:"Register an application, or change it."`
	Rm    applicationsRmCmd    `cmd:"" help:"Forget an application. Lists that it owns keep it as their owner."`
}

type applicationsLsCmd struct{}

// Run lists applications.
func (c *applicationsLsCmd) Run(a *app) error {
	var out server.ListApplications
	if err := a.call(http.MethodGet, applicationsPath, nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out.Applications)
	}
	rows := [][]string{{"APPLICATION", "TENANT", "CONTACT", "TOKENS", "REVISION"}}
	for _, app := range out.Applications {
		rows = append(rows, []string{
			app.Name, app.Tenant, dash(app.Contact), dash(strings.Join(app.Tokens, ",")), fmt.Sprint(app.Revision),
		})
	}
	return table(a.out, rows)
}

type applicationsApplyCmd struct {
	Application string   `arg:"" help:"Name of the application."`
	Tenant      string   `placeholder:"TENANT" help:"Its owner's (default: the tenant of your token). Only a new application needs it."`
	Contact     string   `help:"Whom to ask about it."`
	Tokens      []string `name:"with-token" placeholder:"NAME" help:"Name of a token with which it asks lists; several are allowed."`
}

// Run registers or changes an application.
func (c *applicationsApplyCmd) Run(a *app) error {
	path := applicationsPath + "/" + escaped(c.Application)
	var is namelist.Application
	err := a.call(http.MethodGet, path, nil, nil, &is)
	if e, ok := errors.AsType[*freeslot.Error](err); err != nil && (!ok || e.Code != freeslot.CodeNotFound) {
		return err
	}
	body := server.ApplicationUpdate{Tenant: c.Tenant, Contact: c.Contact, Tokens: c.Tokens, Revision: &is.Revision}
	if body.Tenant == "" {
		body.Tenant = is.Tenant
	}
	var out namelist.Application
	if err := a.call(http.MethodPut, path, nil, body, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	return a.println("application %s of tenant %s is at revision %d", out.Name, out.Tenant, out.Revision)
}

type applicationsRmCmd struct {
	Application string `arg:"" help:"Name of the application."`
}

// Run forgets an application.
func (c *applicationsRmCmd) Run(a *app) error {
	return a.done(a.call(http.MethodDelete, applicationsPath+"/"+escaped(c.Application), nil, nil, nil),
		"application %s is forgotten", c.Application)
}

type listsGrantCmd struct {
	oneList
	To     string   `placeholder:"NAME" help:"Name of an operator's token, or tenant and name of a tenant-operator's: acme/olga. Without it the grants are listed."`
	May    []string `placeholder:"WHAT,…" help:"What it may: edit, query, switch. It replaces an earlier grant."`
	Revoke bool     `help:"It may nothing any more."`
}

// Run grants, revokes or lists.
func (c *listsGrantCmd) Run(a *app) error {
	var l server.NameList
	switch {
	case c.To == "" && (c.Revoke || len(c.May) > 0):
		return usage("--to is missing: the name of the token")
	case c.To != "" && c.Revoke == (len(c.May) > 0):
		return usage("--to needs --may or --revoke")
	case c.To == "":
		if err := a.call(http.MethodGet, c.path(), nil, nil, &l); err != nil {
			return err
		}
	default:
		may := []namelist.May{}
		for _, m := range c.May {
			may = append(may, namelist.May(m))
		}
		body := server.GrantRequest{To: c.To, May: may}
		if err := a.call(http.MethodPut, c.path()+"/grants", nil, body, &l); err != nil {
			return err
		}
	}
	if c.Revoke && len(l.Grants) == 0 {
		a.warn("list %s has no grant any more: without an owner it is open to all operators", c.List)
	}
	if a.json {
		return a.printJSON(l)
	}
	rows := [][]string{{"TOKEN", "MAY"}}
	for name, may := range l.Grants {
		text := make([]string, len(may))
		for i, m := range may {
			text[i] = string(m)
		}
		rows = append(rows, []string{name, strings.Join(text, ",")})
	}
	slices.SortFunc(rows[1:], func(x, y []string) int { return strings.Compare(x[0], y[0]) })
	return table(a.out, rows)
}

type listsOwnCmd struct {
	oneList
	Application string `arg:"" optional:"" help:"The application that owns the list."`
	None        bool   `help:"The list has no owner any more. Without grants it is then open to all operators."`
}

// Run changes the owner of a list.
func (c *listsOwnCmd) Run(a *app) error {
	if c.None == (c.Application != "") {
		return usage("expected an application, or --none for no owner")
	}
	body := server.OwnRequest{Application: c.Application}
	return a.done(a.call(http.MethodPut, c.path()+"/owner", nil, body, nil),
		"list %s belongs to %s", c.List, dash(c.Application))
}
