package server

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/lock"
)

// locksPath lists locks. The audit log is not below it, because a lock can have any name.
const (
	locksPath = "/v1/locks"
	auditPath = "/v1/lock-audit"
)

// maxWaiters is the largest number of waiters shown with one lock.
const maxWaiters = 1000

// maxText is the length limit of a reason or an author's name, in bytes.
const maxText = 256

// Lock describes a lock to operators.
type Lock struct {
	// The tags document Key and the rest for readers of the API.
	Key     string `json:"key"`
	Held    bool   `json:"held" doc:"Whether it is taken."`
	Holder  string `json:"holder,omitempty" doc:"Who has it: by default host:pid of the process."`
	Token   string `json:"token,omitempty" doc:"The fencing token of the hold."`
	SinceMS int64  `json:"since_ms,omitempty" doc:"The store's clock when it was taken, in milliseconds since 1970."`
	LeftMS  int64  `json:"left_ms,omitempty" doc:"Milliseconds until its lease ends without another renewal; -1 where the key has no end, which no lock does."`
	LeaseMS int64  `json:"lease_ms,omitempty" doc:"How long it lasts after each renewal, in milliseconds."`
	// The tag documents RenewedMS and the rest for readers of the API.
	RenewedMS int64    `json:"renewed_ms,omitempty" doc:"The store's clock when it was last renewed, at first when it was taken. Absent while granted or released."`
	Entries   int64    `json:"entries,omitempty" doc:"How often its holder has entered it, as of the last renewal."`
	Granted   bool     `json:"granted,omitempty" doc:"Whether it was given to a waiter that has not claimed it yet."`
	Released  bool     `json:"released,omitempty" doc:"Whether its holder has given it back, and it stays taken for the least time that was asked for."`
	Revoked   string   `json:"revoked,omitempty" doc:"The reason of the operator who revoked it."`
	Waiting   int64    `json:"waiting" doc:"How many wait in the queue; of a lock that is not fair, one for each process."`
	Waiters   []Waiter `json:"waiters,omitempty" doc:"The first 1000, in the order in which they get it. Not in listings."`
	// The tag documents Problem for readers of the API.
	Problem string `json:"problem,omitempty" doc:"What is wrong with the key, which then is no lock of this layout."`
}

// Waiter is one place in the queue of a lock.
type Waiter struct {
	Holder  string `json:"holder" doc:"Who waits, as holder says."`
	Process string `json:"process" doc:"Which start of a process this is; all holders and waiters of one process have the same."`
	// The tag documents SilentMS for readers of the API.
	SilentMS int64 `json:"silent_ms" doc:"Milliseconds since its process was heard of; -1 where it was not. Who is silent for longer than the liveness limit is passed over."`
}

// LockPage is one page of a listing.
type LockPage struct {
	Locks []Lock `json:"locks" doc:"Locks that were held or awaited for a second, in no order. While locks come and go one can be missing, or be there twice."`
	// The tag documents Cursor for readers of the API.
	Cursor string `json:"cursor,omitempty" doc:"Continues the listing, also after an empty page; absent at its end."`
}

// RevokeRequest is the body of a revocation.
type RevokeRequest struct {
	Reason string `json:"reason" doc:"Why, for the holder and for the audit log; at most 256 bytes."`
	Author string `json:"author,omitempty" doc:"Who, for the audit log; the tenant of the token is put before it."`
	Token  string `json:"token,omitempty" doc:"The token of the hold that was seen; conflict where there is another one now. Absent means whichever there is."`
	// The tag documents Now for readers of the API.
	Now bool `json:"now,omitempty" doc:"Delete the lock at once, although its holder may be at work: until its next check it works beside the next holder."`
}

// RevokeResult is the outcome of a revocation.
type RevokeResult struct {
	Key   string `json:"key"`
	Token string `json:"token" doc:"The token of the hold that was revoked."`
	Now   bool   `json:"now" doc:"Whether the lock was deleted."`
	// The tag documents Text for readers of the API.
	Text string `json:"text" doc:"What follows, for people."`
}

// AuditEntry is one revocation that was made.
type AuditEntry struct {
	AtMS     int64  `json:"at_ms" doc:"The store's clock, in milliseconds since 1970."`
	Key      string `json:"key"`
	Holder   string `json:"holder"`
	Token    string `json:"token"`
	Operator string `json:"operator" doc:"The tenant of the token, and who the caller said to be."`
	Reason   string `json:"reason"`
	// The tag documents Now for readers of the API.
	Now bool `json:"now" doc:"Whether the lock was deleted at once."`
}

// AuditLog holds the last entries of the audit log.
type AuditLog struct {
	Entries []AuditEntry `json:"entries" doc:"The newest first. The store keeps about 1000; a cluster, about 1000 for each of 64 groups of locks."`
}

type (
	listInput struct {
		Cursor string `query:"cursor" maxLength:"512" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many locks; fewer where some are free again."`
	}
	listOutput struct{ Body LockPage }
	lockInput  struct {
		Key string `path:"key" doc:"The name of the lock, escaped as a part of a path."`
	}
	lockOutput  struct{ Body Lock }
	revokeInput struct {
		Key     string `path:"key" doc:"The name of the lock, escaped as a part of a path."`
		RawBody []byte
	}
	revokeOutput struct{ Body RevokeResult }
	auditInput   struct {
		Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most this many entries."`
	}
	auditOutput struct{ Body AuditLog }
)

// routes are the HTTP routes of locks.
type routes struct {
	*api.Router
	locks locks
}

func routesOf(l locks) api.Routes {
	return func(router *api.Router) {
		r := &routes{router, l}
		r.register()
		r.document(router.OpenAPI())
	}
}

func (r *routes) register() {
	tags := []string{"locks"}
	huma.Register(r, huma.Operation{
		OperationID: "list-locks", Method: http.MethodGet, Path: locksPath, Tags: tags,
		Summary:     "List locks that are held or awaited",
		Description: "Shorter holds than a second are left out. It reads a list that the processes keep, and no other keys.",
	}, r.list)
	huma.Register(r, huma.Operation{
		OperationID: "get-lock", Method: http.MethodGet, Path: locksPath + "/{key}", Tags: tags,
		Summary:     "Show a lock and who waits for it",
		Description: "Every name names a lock, which may be free.",
	}, r.get)
	huma.Register(r, huma.Operation{
		OperationID: "revoke-lock", Method: http.MethodPost, Path: locksPath + "/{key}/revoke", Tags: tags,
		Summary: "Take a lock from its holder",
		Description: "The holder's context ends at its next check or renewal. The lock is free when the holder has given " +
			"it back, or its lease is over. " +
			"Each revocation is in the audit log.",
	}, r.revoke)
	huma.Register(r, huma.Operation{
		OperationID: "list-lock-audit", Method: http.MethodGet, Path: auditPath, Tags: tags,
		Summary: "List revocations of locks",
	}, r.audit)
}

func (r *routes) list(ctx context.Context, in *listInput) (*listOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	found, next, err := r.locks.List(ctx, in.Cursor, in.Limit)
	if err != nil {
		return nil, r.Refuse("locks", err)
	}
	out := LockPage{Locks: make([]Lock, len(found)), Cursor: next}
	for i := range found {
		out.Locks[i] = shown(&found[i])
	}
	return &listOutput{Body: out}, nil
}

func (r *routes) get(ctx context.Context, in *lockInput) (*lockOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	state, err := r.locks.Get(ctx, in.Key, maxWaiters)
	if err != nil {
		return nil, r.Refuse("lock", err)
	}
	return &lockOutput{Body: shown(&state)}, nil
}

func shown(s *lock.State) Lock {
	out := Lock{Key: s.Key, Held: s.Token != 0, Waiting: s.Waiting, Problem: s.Problem}
	if out.Held {
		out.Holder, out.Token, out.SinceMS = s.Holder, strconv.FormatInt(s.Token, 10), s.Since.UnixMilli()
		out.LeftMS, out.LeaseMS, out.Entries = s.Left.Milliseconds(), s.Lease.Milliseconds(), s.Entries
		if !s.Renewed.IsZero() {
			out.RenewedMS = s.Renewed.UnixMilli()
		}
		out.Granted, out.Released, out.Revoked = s.Granted, s.Released, s.Revoked
	}
	for _, w := range s.Waiters {
		out.Waiters = append(out.Waiters, Waiter{Holder: w.Holder, Process: w.Process, SilentMS: w.Silent.Milliseconds()})
	}
	return out
}

func (r *routes) revoke(ctx context.Context, in *revokeInput) (*revokeOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	revocation, err := decodeRevocation(ctx, in)
	if err != nil {
		return nil, r.Refuse("revoke lock", err)
	}
	token, err := r.locks.Revoke(ctx, revocation)
	if err != nil {
		return nil, r.Refuse("revoke lock", err)
	}
	audit.Of(ctx).Note(fmt.Sprintf("held with token %d", token), "revoked")
	out := RevokeResult{Key: in.Key, Token: strconv.FormatInt(token, 10), Now: revocation.Now}
	out.Text = "its holder stops at its next check or renewal; the lock is free when the holder has given it back, or " +
		"its lease is over"
	if out.Now {
		out.Text = "the lock is free; until its next check the old holder may be at work beside the next one, and only " +
			"what checks fencing tokens tells them apart"
	}
	return &revokeOutput{Body: out}, nil
}

func decodeRevocation(ctx context.Context, in *revokeInput) (lock.Revocation, error) {
	var request RevokeRequest
	if err := freeslot.DecodeStrict("revocation", in.RawBody, &request); err != nil {
		return lock.Revocation{}, err
	}
	out := lock.Revocation{
		Key: in.Key, Operator: api.Author(ctx, request.Author, request.Reason), Reason: request.Reason, Now: request.Now,
	}
	var found freeslot.FieldErrors
	if request.Reason == "" {
		found.Addf("reason", "is missing, expected why the lock is revoked")
	}
	text := func(field, s string) {
		if len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			found.Addf(field, "is no line of at most %d bytes", maxText)
		}
	}
	text("reason", request.Reason)
	text("author", request.Author)
	if request.Token != "" {
		var err error
		if out.Token, err = strconv.ParseInt(request.Token, 10, 64); err != nil || out.Token <= 0 {
			found.Addf("token", "is %q, expected the token of a hold", request.Token)
		}
	}
	return out, found.Err()
}

func (r *routes) audit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	found, err := r.locks.Audit(ctx, in.Limit)
	if err != nil {
		return nil, r.Refuse("audit log of locks", err)
	}
	out := AuditLog{Entries: make([]AuditEntry, len(found))}
	for i, e := range found {
		out.Entries[i] = AuditEntry{
			AtMS: e.At.UnixMilli(), Key: e.Key, Holder: e.Holder, Token: fmt.Sprint(e.Token), Operator: e.Operator,
			Reason: e.Reason, Now: e.Now,
		}
	}
	return &auditOutput{Body: out}, nil
}

// document adds to the OpenAPI document what the Go types cannot express.
func (r *routes) document(doc *huma.OpenAPI) {
	doc.Tags = append(doc.Tags, &huma.Tag{Name: "locks", Description: "Locks, who holds them, and how to take them away."})
	body := doc.Components.Schemas.Schema(reflect.TypeFor[RevokeRequest](), true, "RevokeRequest")
	doc.Paths[locksPath+"/{key}/revoke"].Post.RequestBody = &huma.RequestBody{
		Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: body}},
	}
}
