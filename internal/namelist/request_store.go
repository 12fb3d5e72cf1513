package namelist

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Bounds of requests.
const (
	// RequestLife is how long a request can be decided.
	RequestLife = 7 * 24 * time.Hour
	// MaxOpenRequests and requestsKept bound the open and the closed requests of a tenant.
	MaxOpenRequests = 20
	requestsKept    = 100
	// MaxRequest is the largest change that a request keeps, in bytes.
	MaxRequest   = 512 << 10
	changeSuffix = ":change"
)

// RequestState is the state of a request.
type RequestState string

// The states of a request.
const (
	RequestPending   RequestState = "pending"
	RequestApproved  RequestState = "approved"
	RequestRejected  RequestState = "rejected"
	RequestWithdrawn RequestState = "withdrawn" // by its author
	// RequestConflict means that the target has changed since the request.
	RequestConflict RequestState = "conflict"
	RequestLapsed   RequestState = "lapsed"
	// RequestUrgent marks an edit that needed no approval, and is kept so that others see it.
	RequestUrgent RequestState = "urgent"
)

// ChangeKind says what a request changes.
type ChangeKind string

// The kinds.
const (
	CreateList     ChangeKind = "create-list"
	SetList        ChangeKind = "set-list"
	DeleteList     ChangeKind = "delete-list"
	EditList       ChangeKind = "edit-list"
	SwitchList     ChangeKind = "switch-list"
	ChangeChain    ChangeKind = "change-chain"
	PutApplication ChangeKind = "put-application"
)

// ChangeRequest is a change that waits for approval, or has been decided.
type ChangeRequest struct {
	// The tags document ID and the rest for readers of the API.
	ID      string       `json:"id" doc:"Tenant and a random part."`
	Kind    ChangeKind   `json:"kind"`
	Target  string       `json:"target" doc:"The list, chain or application."`
	Tenant  string       `json:"tenant" doc:"Of the author."`
	Author  string       `json:"author" doc:"Name of the token, or its tenant and who the caller said to be."`
	Note    string       `json:"note,omitempty"`
	Summary string       `json:"summary" doc:"What it does, for people."`
	Digest  string       `json:"digest" doc:"SHA-256 of the change and of the state of its target for which it was validated."`
	State   RequestState `json:"state" doc:"pending, approved, rejected, withdrawn, conflict (the target has moved on), lapsed, or urgent (it needed no approval)."`
	// Mark is the target's when the change was validated; its zero value means that there was none.
	Mark
	AtMS      int64  `json:"at_ms" doc:"Redis' time when it was made, in milliseconds since 1970."`
	UntilMS   int64  `json:"until_ms" doc:"When it lapses."`
	DecidedBy string `json:"decided_by,omitempty"`
	DecidedMS int64  `json:"decided_ms,omitempty"`
	Comment   string `json:"comment,omitempty" doc:"Of the decision."`
	// Change is only in the answer to a question for one request.
	Change json.RawMessage `json:"change,omitempty" doc:"What it changes, until it is decided."`
}

// DigestOf returns the digest of a change of a target in the state of mark. change is in its
// canonical form.
func DigestOf(kind ChangeKind, target string, change []byte, mark Mark) string {
	text, err := json.Marshal(struct {
		Kind   ChangeKind
		Target string
		Mark   Mark
		Change []byte
	}{kind, target, mark, change})
	if err != nil {
		panic(err) // it has texts and numbers alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// SourceTenant has the requests of imports that no caller has begun. No tenant has such a name.
const SourceTenant = "_sources"

// validTenant checks the tenant of a request.
func validTenant(name string) error {
	if name == SourceTenant {
		return nil
	}
	return freeslot.ValidateName("tenant", name)
}

// tenantOf returns the tenant that an id of a request names.
func tenantOf(id string) (string, error) {
	at := strings.LastIndexByte(id, '.')
	if at < 0 || validTenant(id[:at]) != nil || len(id)-at != 33 {
		return "", NoRequest(id)
	}
	return id[:at], nil
}

// NoRequest returns the error that there is no such request.
func NoRequest(id string) error {
	return &freeslot.Error{
		Code: freeslot.CodeNotFound, Field: "request", Message: fmt.Sprintf("there is no request %.120q", id),
	}
}

// TargetMark returns the mark of a list, a chain or an application; the zero value if there is
// none.
func (c *Control) TargetMark(ctx context.Context, kind ChangeKind, target string) (Mark, error) {
	r := []ChangeRequest{{Kind: kind, Target: target}}
	marks, _, err := c.targets(ctx, r)
	return marks[0], err
}

// targets returns the marks of the targets of requests, in their order.
func (c *Control) targets(ctx context.Context, all []ChangeRequest) (marks []Mark, at time.Time, err error) {
	marks = make([]Mark, len(all))
	var names []string
	var places []int
	var apps map[string]Application
	for i := range all {
		switch r := &all[i]; r.Kind {
		case PutApplication:
			if apps == nil {
				if apps, err = c.Applications(ctx); err != nil {
					return marks, at, err
				}
			}
			marks[i].Revision = apps[r.Target].Revision
		case ChangeChain:
			names, places = append(names, ChainMark(r.Target)), append(places, i)
		default:
			names, places = append(names, r.Target), append(places, i)
		}
	}
	for first := 0; first == 0 || first < len(names); first += LookLists {
		end := min(first+LookLists, len(names))
		found, _, now, err := c.Look(ctx, names[first:end], false)
		if err != nil {
			return marks, at, err
		}
		at = now
		for i, m := range found {
			marks[places[first+i]] = m
		}
	}
	return marks, at, nil
}

// settle sets the states that come from the time, and from what has happened to the targets.
func (c *Control) settle(ctx context.Context, all []ChangeRequest) error {
	marks, at, err := c.targets(ctx, all)
	if err != nil {
		return err
	}
	for i := range all {
		switch r := &all[i]; {
		case r.State != RequestPending:
		case r.UntilMS <= at.UnixMilli():
			r.State = RequestLapsed
		case r.Mark != marks[i]:
			r.State = RequestConflict
		}
	}
	return nil
}

// Requests returns the requests of a tenant, of all tenants if that is empty, the newest first.
func (c *Control) Requests(ctx context.Context, tenant string) (out []ChangeRequest, err error) {
	tenants := []string{tenant}
	if tenant == "" {
		read := c.runner.B().Hkeys().Key(c.k.requesters()).Build()
		if tenants, err = c.runner.Do(ctx, "requests", read).AsStrSlice(); err != nil {
			return nil, fmt.Errorf("tenants with requests: %w", err)
		}
	}
	for _, t := range tenants {
		one, err := c.requestsOf(ctx, t)
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	slices.SortFunc(out, func(a, b ChangeRequest) int {
		if a.AtMS != b.AtMS {
			return int(b.AtMS - a.AtMS)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, c.settle(ctx, out)
}

// requestsOf reads a tenant's requests, whose states are as Redis has them.
func (c *Control) requestsOf(ctx context.Context, tenant string) (out []ChangeRequest, err error) {
	key := c.k.requests(tenant)
	fields, err := c.runner.Do(ctx, "requests", c.runner.B().Hkeys().Key(key).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("requests of tenant %s: %w", tenant, err)
	}
	fields = slices.DeleteFunc(fields, func(f string) bool { return strings.HasSuffix(f, changeSuffix) })
	if len(fields) == 0 {
		return nil, nil
	}
	values, err := c.runner.Do(ctx, "requests", c.runner.B().Hmget().Key(key).Field(fields...).Build()).ToArray()
	if err != nil {
		return nil, fmt.Errorf("requests of tenant %s: %w", tenant, err)
	}
	for i := range values {
		var r ChangeRequest
		if text, err := values[i].ToString(); err == nil && json.Unmarshal([]byte(text), &r) == nil { // else it has gone
			out = append(out, r)
		}
	}
	return out, nil
}

// Request reads one request with its change. Errors: not_found.
func (c *Control) Request(ctx context.Context, id string) (r ChangeRequest, err error) {
	tenant, err := tenantOf(id)
	if err != nil {
		return r, err
	}
	read := c.runner.B().Hmget().Key(c.k.requests(tenant)).Field(id, id+changeSuffix).Build()
	values, err := c.runner.Do(ctx, "requests", read).ToArray()
	if err != nil {
		return r, fmt.Errorf("read request %s: %w", id, err)
	}
	text, err := values[0].ToString()
	if err != nil {
		return r, NoRequest(id)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read request %s: %w", id, err)
	}
	if change, err := values[1].ToString(); err == nil {
		r.Change = json.RawMessage(change)
	}
	one := []ChangeRequest{r}
	err = c.settle(ctx, one)
	return one[0], err
}

// OpenRequest keeps a request with its change. The same change by the same author is one request.
// Kind, Target, Tenant, Author, Note, Summary, State, Mark and Change are the caller's. Errors:
// invalid_argument; payload_too_large; overloaded if the tenant has MaxOpenRequests.
func (c *Control) OpenRequest(ctx context.Context, r ChangeRequest) (ChangeRequest, error) {
	var found freeslot.FieldErrors
	found.Add(validTenant(r.Tenant))
	By{Author: r.Author, Note: r.Note}.validate(&found)
	if err := found.Err(); err != nil {
		return r, err
	}
	if len(r.Change) > MaxRequest {
		return r, &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: fmt.Sprintf(
			"the change has %d bytes, and a request keeps at most %d; make smaller changes, or import a file",
			len(r.Change), MaxRequest)}
	}
	change := r.Change
	r.ID, r.Digest, r.Change = r.Tenant+"."+random128(), DigestOf(r.Kind, r.Target, change, r.Mark), nil
	before, err := c.requestsOf(ctx, r.Tenant)
	if err != nil {
		return r, err
	}
	if err := c.settle(ctx, before); err != nil {
		return r, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	args := []string{
		r.Tenant, r.ID, string(text), string(change), number(MaxOpenRequests), milliseconds(RequestLife),
		number(requestsKept),
	}
	for i := range before {
		if before[i].State == RequestConflict {
			args = append(args, before[i].ID)
		}
	}
	reply := script.ReadReply(
		c.runner.Call(ctx, scripts["request_open"], []string{c.k.requests(r.Tenant), c.k.requesters()}, args),
	)
	code := reply.Number()
	if code == codeFull && reply.Err == nil {
		return r, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(
			"tenant %s has %d requests that wait for approval, of at most %d", r.Tenant, reply.Number(), MaxOpenRequests)}
	}
	if text := reply.Text(); reply.Err == nil {
		reply.Err = json.Unmarshal([]byte(text), &r)
	}
	if reply.Err != nil {
		return r, fmt.Errorf("open a request for %s: %w", r.Target, noMemory(reply.Err))
	}
	r.Change = change
	return r, nil
}

// CloseRequest rejects a request without making its change. Its author withdraws it. Others must be
// admins. Errors: not_found, permission_denied, conflict.
func (c *Control) CloseRequest(ctx context.Context, id string, by By, admin bool) (r ChangeRequest, err error) {
	tenant, err := tenantOf(id)
	if err != nil {
		return r, err
	}
	var found freeslot.FieldErrors
	if by.validate(&found); len(found) > 0 {
		return r, found.Err()
	}
	reply := script.ReadReply(c.runner.Call(
		ctx, scripts["request_close"], []string{c.k.requests(tenant)}, []string{id, by.Author, by.Note, flag(admin)},
	))
	code := reply.Number()
	switch {
	case reply.Err != nil:
	case code == codeGone:
		return r, NoRequest(id)
	case code == codeUndecided:
		if why := reply.Text(); reply.Err == nil {
			return r, undecided(id, why)
		}
	default:
		if text := reply.Text(); reply.Err == nil {
			reply.Err = json.Unmarshal([]byte(text), &r)
		}
	}
	if reply.Err != nil {
		return r, fmt.Errorf("close request %s: %w", id, noMemory(reply.Err))
	}
	return r, nil
}
