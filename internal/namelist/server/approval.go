package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

const (
	// diffTimeout bounds the comparison of two versions before a switch. Beyond it, the difference
	// counts as too large.
	diffTimeout = 3 * time.Second
)

// PendingCode is the code of a change that waits for approval.
const PendingCode = "approval_pending"

// Pending is the answer, with status 202, to a change that waits for approval.
type Pending struct {
	// The tags document Code and the rest for readers of the API.
	Code    string                 `json:"code" doc:"approval_pending."`
	Message string                 `json:"message" doc:"What happens next, for people."`
	Request namelist.ChangeRequest `json:"request"`
}

// Error implements error: nothing was changed.
func (p *Pending) Error() string { return p.Code + ": " + p.Message }

// Unwrap returns manage.ErrHeld.
func (p *Pending) Unwrap() error { return manage.ErrHeld }

// RequestID returns the id of the request, for runs of sources.
func (p *Pending) RequestID() string { return p.Request.ID }

// GetStatus returns the HTTP status, for the framework.
func (p *Pending) GetStatus() int { return http.StatusAccepted }

// approvals decides which changes wait for approval, keeps their requests, and makes them.
type approvals struct {
	policy  config.ListApproval
	control *namelist.Control
	manager *manage.Manager
	log     *zap.Logger
}

// most returns how many ids of a list that serves this many may change without approval, -1 for any
// number. A list that serves none has no share to change.
func (a *approvals) most(serves int64) int64 {
	most := int64(-1)
	if a.policy.OverIDs > 0 {
		most = a.policy.OverIDs
	}
	if a.policy.OverPercent > 0 && serves > 0 {
		share := int64(a.policy.OverPercent * float64(serves) / 100)
		if most < 0 || share < most {
			most = share
		}
	}
	return most
}

// over reports whether a change of this many ids needs approval by itself, in a list that serves
// this many.
func (a *approvals) over(changed, serves int64) bool {
	most := a.most(serves)
	return most >= 0 && changed > most
}

// quota returns what counts a change of a list; nil if the policy does not.
func (a *approvals) quota(changed, serves int64) *namelist.Quota {
	if most := a.most(serves); most >= 0 {
		return &namelist.Quota{IDs: changed, Most: most}
	}
	return nil
}

// beside says in the summary of a request what it comes on top of.
func beside(before int64) string {
	if before == 0 {
		return ""
	}
	return fmt.Sprintf("; %s changed without approval in the last 24 hours", plural.Of(before, "other was", "others were"))
}

// sized reports whether the size of a change decides about its approval.
func (a *approvals) sized() bool { return a.policy.OverIDs > 0 || a.policy.OverPercent > 0 }

// propose keeps a request for a change, and returns it as a *Pending.
func (a *approvals) propose(ctx context.Context, r namelist.ChangeRequest, change any) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	r.State, r.Change = namelist.RequestPending, text
	if r, err = a.control.OpenRequest(ctx, r); err != nil {
		return err
	}
	audit.Of(ctx).Note("", "waits for approval: "+r.ID)
	return &Pending{Code: PendingCode, Request: r, Message: fmt.Sprintf(
		"nothing was changed yet: request %[1]s (%[2]s) waits for at most 7 days until another admin approves it: "+
			"`schedctl lists requests approve %[1]s`; that makes the change, which need not be asked for again", r.ID,
		r.Summary)}
}

// asked returns a request by the caller for a change of a list in the state of its head.
func asked(
	ctx context.Context, kind namelist.ChangeKind, target string, mark namelist.Mark, by namelist.By, summary string,
) namelist.ChangeRequest {
	return namelist.ChangeRequest{
		Kind: kind, Target: target, Tenant: api.Caller(ctx).Tenant, Author: by.Author, Note: by.Note, Summary: summary,
		Mark: mark,
	}
}

func markOf(h *namelist.Head) namelist.Mark {
	return namelist.Mark{Revision: h.Revision, Birth: h.Birth}
}

func servingOf(h *namelist.Head) (number, count int64) {
	if h.Serving == nil {
		return 0, 0
	}
	return h.Serving.Number, h.Serving.Count
}

// answers returns how many ids a list answers for at most, with its edits.
func answers(h *namelist.Head) int64 {
	if h.Serving == nil {
		return 0
	}
	return h.Serving.Count + h.Edited - h.Serving.Edited
}

// create makes a list, or asks for it.
func (a *approvals) create(ctx context.Context, list string, q *ListSpec) (namelist.Head, error) {
	s, err := a.specOf(ctx, q)
	if err != nil {
		return namelist.Head{}, err
	}
	who := api.Caller(ctx)
	if who.Role == identity.TenantOperator && (s.Owner.Application == "" || s.Owner.Tenant != who.Tenant) {
		return namelist.Head{}, freeslot.Invalid(
			"application", "is %.80q, expected a registered application of the tenant %s, which will own the list",
			q.Application, who.Tenant)
	}
	if err := a.manager.Reservable(ctx, s.Server, s.Expected); err != nil {
		return namelist.Head{}, err
	}
	if a.policy.Creation || who.Role == identity.TenantOperator {
		if err := a.control.CheckSpec(ctx, list, s); err != nil {
			return namelist.Head{}, err
		}
		r := asked(ctx, namelist.CreateList, list, namelist.Mark{}, ByWhom{}.by(ctx), "create list "+list)
		return namelist.Head{}, a.propose(ctx, r, q)
	}
	return a.control.Create(ctx, list, s)
}

// set changes settings, or asks for it: an end of the list changes the answers for all ids.
func (a *approvals) set(ctx context.Context, h *namelist.Head, q *ListSpec) (namelist.Head, error) {
	s, err := a.specOf(ctx, q)
	if err != nil {
		return *h, err
	}
	_, count := servingOf(h)
	ends := !s.Expires.Equal(h.Expires) || !s.Expires.IsZero() && s.ExpiredNo != h.ExpiredNo
	if ends && a.over(answers(h), count) {
		summary := fmt.Sprintf("change the end of list %s, of %s", h.Name, plural.Of(count, "id", "ids"))
		return *h, a.propose(ctx, asked(ctx, namelist.SetList, h.Name, markOf(h), ByWhom{}.by(ctx), summary), q)
	}
	return a.control.Set(ctx, h.Name, s.Settings)
}

// deleting is a deletion in a request.
type deleting struct {
	Force bool `json:"force"`
}

func (a *approvals) delete(ctx context.Context, list string, q deleting, by namelist.By) (ListDeleted, error) {
	if a.policy.Deletion || a.sized() {
		h, err := a.control.Head(ctx, list)
		if err != nil {
			return ListDeleted{}, err
		}
		_, count := servingOf(&h)
		if h.State != namelist.Deleting && (a.policy.Deletion || a.over(answers(&h), count)) {
			summary := fmt.Sprintf("delete list %s, which serves %s", list, plural.Of(count, "id", "ids"))
			return ListDeleted{}, a.propose(ctx, asked(ctx, namelist.DeleteList, list, markOf(&h), by, summary), q)
		}
	}
	h, left, err := a.manager.Delete(ctx, list, q.Force, by)
	return ListDeleted{ListChanged{h.Revision}, left}, err
}

// edit edits a list, or asks for it. An urgent edit of a deny list is made at once, and shown among
// the requests.
func (a *approvals) edit(ctx context.Context, list string, q *EntriesRequest) (revision int64, err error) {
	e := namelist.EditRequest{ID: q.ID, Changes: q.Entries, Urgent: q.Urgent, By: q.by(ctx)}
	if !a.sized() {
		return a.control.Edit(ctx, list, e)
	}
	h, err := a.control.Head(ctx, list)
	if err != nil {
		return 0, err
	}
	changed, before := int64(len(q.Entries)), h.Unapproved()
	_, count := servingOf(&h)
	e.Quota = a.quota(changed, count)
	free := q.Urgent && tokenfile.MatchesAny(a.policy.DenyLists, list)
	if free && e.Quota != nil {
		e.Quota.Most = -1
	}
	revision, err = a.control.Edit(ctx, list, e)
	over, tooMany := errors.AsType[*namelist.QuotaError](err)
	if tooMany {
		before = over.Before
	}
	summary := fmt.Sprintf("change %s of list %s by an edit", plural.Of(changed, "id", "ids"), list) + beside(before)
	r := asked(ctx, namelist.EditList, list, markOf(&h), e.By, summary)
	switch {
	case tooMany:
		return 0, a.propose(ctx, r, q)
	case err != nil || !free || !a.over(before+changed, count):
		return revision, err
	}
	a.log.Warn("lists.urgent_edit", zap.String("list", list), zap.String("author", r.Author), zap.String("note", r.Note),
		zap.Int64("entries", changed), zap.Int64("revision", revision))
	audit.Of(ctx).Note("", "urgent, without approval: "+summary)
	r.State, r.Change = namelist.RequestUrgent, json.RawMessage("{}")
	if _, err := a.control.OpenRequest(ctx, r); err != nil { // the edit was made, and the audit has it
		a.log.Warn("lists.urgent_edit_not_shown", zap.String("list", list), zap.Error(err))
	}
	return revision, nil
}

// commit commits an edit session. It refuses one that needs approval: its lease is shorter than a
// decision.
func (a *approvals) commit(ctx context.Context, list, session string, by namelist.By) (revision int64, err error) {
	var quota *namelist.Quota
	if a.sized() {
		h, err := a.control.Head(ctx, list)
		if err != nil {
			return 0, err
		}
		_, count := servingOf(&h)
		quota = a.quota(0, count)
	}
	revision, err = a.manager.CommitSession(ctx, list, session, quota, by)
	if over, ok := errors.AsType[*namelist.QuotaError](err); ok {
		return 0, &freeslot.Error{Code: freeslot.CodeConflict, Message: over.Error() +
			"; sessions end before an approval: import the ids with mode add or remove, and ask for the switch"}
	}
	return revision, err
}

// switching is a switch in a request.
type switching struct {
	Version int64  `json:"version"`
	Build   string `json:"build"`
	Serving int64  `json:"serving"`
	Now     bool   `json:"now,omitempty"`
}

// doSwitch switches, or asks for it. tenant is the author's.
func (a *approvals) doSwitch(
	ctx context.Context, list, tenant string, q manage.SwitchRequest,
) (op namelist.Operation, err error) {
	if !a.sized() {
		return a.manager.Switch(ctx, list, q)
	}
	if err := a.permit(ctx, list, tenant, &q); err != nil {
		return op, err
	}
	return a.manager.Switch(ctx, list, q)
}

// permit returns nil if a switch needs no approval, or the error of a request for it. It pins the
// switch to the serving version with which the size was compared. Switches of sources, which are of
// no tenant, are not added up: what sources have is not by hand.
func (a *approvals) permit(ctx context.Context, list, tenant string, q *manage.SwitchRequest) error {
	if !a.sized() {
		return nil
	}
	h, err := a.control.Head(ctx, list)
	if err != nil {
		return err
	}
	v, err := a.control.Version(ctx, list, q.Number)
	if err != nil {
		return err
	}
	if err := h.Target(&v); err != nil {
		return err
	}
	serving, count := servingOf(&h)
	if q.Serving != namelist.AnyVersion && q.Serving != serving {
		return nil // the switch says that it is a conflict
	}
	q.Serving = serving
	changed, known, err := a.difference(ctx, &h, &v)
	if err != nil {
		return err
	}
	var before int64
	if serving > 0 && tenant != namelist.SourceTenant { // the first version changes no answer that was there
		before, q.Quota = h.Unapproved(), a.quota(changed, count)
	}
	if known && !a.over(before+changed, count) {
		return nil
	}
	what := "an unknown number of ids"
	if known {
		what = plural.Of(changed, "id", "ids")
	}
	r := namelist.ChangeRequest{
		Kind: namelist.SwitchList, Target: list, Tenant: cmp.Or(tenant, namelist.SourceTenant),
		Author: q.By.Author, Note: q.By.Note,
		Mark: markOf(&h), Summary: fmt.Sprintf(
			"switch list %s from version %d to %d (%s), which changes %s", list, serving, v.Number,
			plural.Of(v.Count, "id", "ids"), what) + beside(before),
	}
	return a.propose(ctx, r, switching{v.Number, v.Build, serving, q.Now})
}

// difference returns how many ids a switch to a version changes; known is false if that takes too
// long.
func (a *approvals) difference(
	ctx context.Context, h *namelist.Head, v *namelist.Version,
) (changed int64, known bool, err error) {
	switch {
	case h.Serving == nil:
		return v.Count, true, nil
	case h.Serving.Number == v.Number:
		return 0, true, nil
	}
	short, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()
	d, err := a.manager.Diff(short, h.Name, v.Number, h.Serving.Number, 0)
	if short.Err() != nil && ctx.Err() == nil {
		return 0, false, nil
	}
	return d.Added.Count + d.Removed.Count + d.Changed.Count + d.Dropped.Count, !d.Trimmed, err
}

// permitted are the imports of sources, whose switches need approval like others.
type permitted struct {
	*manage.Manager

	approvals *approvals
}

// Switch begins a switch, or asks for it.
func (p permitted) Switch(ctx context.Context, list string, q manage.SwitchRequest) (namelist.Operation, error) {
	return p.approvals.doSwitch(ctx, list, namelist.SourceTenant, q)
}

// permitUpload decides whether the version of an upload may serve at once.
func (a *approvals) permitUpload(ctx context.Context, u *manage.Upload, q *manage.SwitchRequest) error {
	return a.permit(ctx, u.List, u.Tenant, q)
}

// specOf returns the description of a list, with the tenant of its owner.
func (a *approvals) specOf(ctx context.Context, q *ListSpec) (namelist.Spec, error) {
	s, err := q.spec()
	if err != nil || q.Application == "" {
		return s, err
	}
	s.Owner, err = a.ownerOf(ctx, q.Application)
	return s, err
}

// ownerOf returns an application as an owner.
func (a *approvals) ownerOf(ctx context.Context, application string) (namelist.ListOwner, error) {
	apps, err := a.control.Applications(ctx)
	if err != nil {
		return namelist.ListOwner{}, err
	}
	app, ok := apps[application]
	if !ok {
		return namelist.ListOwner{}, freeslot.Invalid("application", "is %.80q, which is not registered", application)
	}
	return namelist.ListOwner{Application: application, Tenant: app.Tenant}, nil
}

// approve makes the change of a request. The first script of the change approves the request.
func (a *approvals) approve(ctx context.Context, r *namelist.ChangeRequest, d *namelist.Decision) error {
	if err := r.Decidable(); err != nil {
		return err
	}
	mark, err := a.control.TargetMark(ctx, r.Kind, r.Target)
	if err != nil {
		return err
	}
	d.Digest = namelist.DigestOf(r.Kind, r.Target, r.Change, mark)
	if ctx, err = namelist.Deciding(ctx, d); err != nil {
		return err
	}
	by := namelist.By{Author: r.Author, Note: r.Note}
	if note := r.Note + " (approved by " + d.By + ")"; len(note) <= 256 {
		by.Note = note
	}
	return a.perform(ctx, r, by)
}

// perform makes the change of a request by the same functions as the routes.
func (a *approvals) perform(ctx context.Context, r *namelist.ChangeRequest, by namelist.By) (err error) {
	switch r.Kind {
	case namelist.CreateList, namelist.SetList:
		var q ListSpec
		if err := json.Unmarshal(r.Change, &q); err != nil {
			return err
		}
		s, err := a.specOf(ctx, &q)
		switch {
		case err != nil:
			return err
		case r.Kind == namelist.CreateList:
			if err = a.manager.Reservable(ctx, s.Server, s.Expected); err == nil {
				_, err = a.control.Create(ctx, r.Target, s)
			}
		default:
			_, err = a.control.Set(ctx, r.Target, s.Settings)
		}
		return err
	case namelist.DeleteList:
		var q deleting
		if err = json.Unmarshal(r.Change, &q); err == nil {
			_, _, err = a.manager.Delete(ctx, r.Target, q.Force, by)
		}
	case namelist.EditList:
		var q EntriesRequest
		if err = json.Unmarshal(r.Change, &q); err == nil {
			_, err = a.control.Edit(
				ctx, r.Target, namelist.EditRequest{
					Changes: q.Entries, Urgent: q.Urgent, Quota: new(namelist.Quota), By: by,
				})
		}
	case namelist.SwitchList:
		var q switching
		if err = json.Unmarshal(r.Change, &q); err == nil {
			_, err = a.manager.Switch(ctx, r.Target, manage.SwitchRequest{
				Number: q.Version, Serving: q.Serving, Now: q.Now, Quota: new(namelist.Quota), By: by,
			})
		}
	case namelist.ChangeChain:
		var c chainChange
		if err = json.Unmarshal(r.Change, &c); err == nil {
			c.Put.By = by
			_, err = a.changeChain(ctx, &c)
		}
	case namelist.PutApplication:
		var q namelist.Application
		if err = json.Unmarshal(r.Change, &q); err == nil {
			_, err = a.control.PutApplication(ctx, q)
		}
	default:
		err = errors.New("a request for " + string(r.Kind) + ", which this release does not know")
	}
	return err
}
