package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/form"
	"github.com/freeslot/freeslot/internal/script"
)

// Limits of edits.
const (
	// EditEntries is the largest number of entries in one call.
	EditEntries = 1000
	// MaxEdits and MaxUrgent bound the entries behind the serving version's base, beyond which
	// ordinary and urgent edits are refused. From CompactFrom on, compaction builds a new version.
	MaxEdits    = 50_000
	MaxUrgent   = 60_000
	CompactFrom = 25_000
	// LogEntries is the largest number of entries in a list's log.
	LogEntries = 100_000
)

// EditRequest is an edit to append.
type EditRequest struct {
	// ID identifies repetitions of a call, within an hour and 1,000 edits; empty means that the
	// call is never repeated.
	ID string
	// Changes has each id once.
	Changes []Change
	// Urgent is true for an edit that is also accepted while an operation runs, and beyond
	// MaxEdits.
	Urgent bool
	// Quota is nil if the entries need not be counted.
	Quota *Quota
	By
}

func (e *EditRequest) validate(found *freeslot.FieldErrors) {
	e.By.validate(found)
	if len(e.ID) > maxLine {
		found.Addf("id", "has %d bytes, expected at most %d", len(e.ID), maxLine)
	}
	if e.Urgent && (e.Author == "" || e.Note == "") {
		found.Addf("urgent", "needs an author and a note")
	}
}

// clean brings the ids of entries into the form of a list.
func clean(found *freeslot.FieldErrors, f form.Form, changes []Change) []Change {
	if len(changes) == 0 || len(changes) > EditEntries {
		found.Addf("entries", "are %d, expected 1 to %d", len(changes), EditEntries)
		return nil
	}
	out, seen := slices.Clone(changes), make(map[string]bool, len(changes))
	for i := range out {
		c, field := &out[i], fmt.Sprintf("entries[%d]", i)
		var err error
		if c.ID, err = f.Clean(c.ID); err != nil {
			found.Addf(field+".id", "%v", err)
		} else if seen[c.ID] {
			found.Addf(field+".id", "is there twice")
		}
		if c.ExpiresMS < 0 || c.Remove && c.ExpiresMS != 0 {
			found.Addf(field+".expires_ms", "is %d, expected a time of an entry that is not removed, or 0", c.ExpiresMS)
		}
		seen[c.ID] = true
	}
	return out
}

// editBy is what the log stores about the author of an edit.
type editBy struct {
	Author string `json:"author,omitzero"`
	Note   string `json:"note,omitzero"`
	Urgent bool   `json:"urgent,omitzero"`
}

// editCall is a call of edit.lua.
type editCall struct {
	list, id, birth, session string
	states                   []string
	limit, n                 int64
	entries                  string
	by                       editBy
	fields                   []string
	quota                    *Quota
}

// check returns the changes in the form of the list.
func (e *EditRequest) check(h *Head) ([]Change, error) {
	var found freeslot.FieldErrors
	e.validate(&found)
	changes := clean(&found, h.Form, e.Changes)
	return changes, found.Err()
}

// Edit appends an edit, and returns its revision.
func (c *Control) Edit(ctx context.Context, list string, e EditRequest) (revision int64, err error) {
	h, err := c.Head(ctx, list)
	if err != nil {
		return 0, err
	}
	changes, err := e.check(&h)
	if err != nil {
		return 0, err
	}
	entries, err := json.Marshal(changes)
	if err != nil {
		return 0, err
	}
	call := editCall{
		list: list, id: e.ID, birth: h.Birth, states: statesFor(func(r rule) bool { return r.edits }), limit: c.limits.edits,
		n: int64(len(changes)), entries: string(entries), by: editBy{e.Author, e.Note, e.Urgent}, quota: e.Quota,
	}
	if e.Urgent {
		call.states, call.limit = statesFor(func(r rule) bool { return r.urgent }), c.limits.urgent
	}
	return c.edit(ctx, &call)
}

// edit runs edit.lua.
func (c *Control) edit(ctx context.Context, e *editCall) (revision int64, err error) {
	by, err := json.Marshal(e.by)
	if err != nil {
		return 0, err
	}
	d, decision, more := c.decision(ctx)
	args := append([]string{
		e.list, c.k.change(e.list), e.id, e.birth, "," + strings.Join(e.states, ",") + ",", e.session,
		number(e.limit), number(c.limits.log), number(e.n), e.entries, string(by), decision, e.quota.most(),
	}, e.fields...)
	r := script.ReadReply(c.runner.Call(ctx, scripts["edit"], append(c.k.changing(e.list), more...), args))
	code, at := r.Number(), redisTime(&r)
	what := "an edit"
	if e.by.Urgent {
		what = "an urgent edit"
	}
	switch {
	case r.Err != nil:
	case code == codeDone || code == codeRepeat:
		revision = r.Number()
		d.carriedOut()
	case code == codeUndecided:
		if why := r.Text(); r.Err == nil {
			return 0, undecided(d.ID, why)
		}
	case code == codeBeyond:
		if before := r.Number(); r.Err == nil {
			return 0, &QuotaError{before, e.quota.Most}
		}
	case code == codeDiffer:
		if h := readHead(&r, e.list, at); r.Err == nil {
			return 0, e.refused(&h, what)
		}
	case code == codeGone:
		return 0, notFound(e.list)
	case code == codeFull:
		if n := r.Number(); r.Err == nil {
			return 0, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(
				"%s of %d entries is refused: list %s has %d since its version was built, of at most %d; wait for the compaction",
				what, e.n, e.list, n, e.limit)}
		}
	default:
		r.Err = fmt.Errorf("code %d of redis is unknown", code)
	}
	if r.Err != nil {
		return 0, fault("edit", e.list, noMemory(r.Err))
	}
	return revision, nil
}

func (e *editCall) refused(h *Head, what string) error {
	switch {
	case e.session != "":
		return h.conflict("commit of edit session " + e.session)
	case e.birth != "" && e.birth != h.Birth:
		return &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "birth", Message: "list " + h.Name + " was deleted and made again",
		}
	}
	err := h.conflict(what)
	if h.State == Draft {
		err.Message += "; import a version and switch to it first"
	}
	return err
}

// Stage stores entries for the edit session of this operation, and renews its lease. A later entry
// of an id replaces the earlier one. It returns the number of staged entries, and the end of the
// lease. Without changes it only renews the lease.
func (c *Control) Stage(
	ctx context.Context, list, session string, changes []Change,
) (staged int64, lease time.Time, err error) {
	before, err := c.Head(ctx, list)
	if err != nil {
		return 0, lease, err
	}
	if len(changes) > 0 {
		var found freeslot.FieldErrors
		if changes = clean(&found, before.Form, changes); len(found) > 0 {
			return 0, lease, found.Err()
		}
	}
	args := []string{session, milliseconds(SessionLease), number(c.limits.edits)}
	for _, change := range changes {
		text, err := json.Marshal(change)
		if err != nil {
			return 0, lease, err
		}
		args = append(args, change.ID, string(text))
	}
	r := script.ReadReply(c.runner.Call(
		ctx, scripts["stage"], []string{c.k.record(list), c.k.versions(list), c.k.staged(list)}, args,
	))
	code, at := r.Number(), redisTime(&r)
	switch {
	case r.Err != nil:
	case code == codeDone:
		staged, lease = r.Number(), redisTime(&r)
	case code == codeDiffer:
		if h := readHead(&r, list, at); r.Err == nil && !h.exists() {
			return 0, lease, notFound(list)
		} else if r.Err == nil {
			return 0, lease, h.conflict("edit session " + session)
		}
	case code == codeFull:
		if n := r.Number(); r.Err == nil {
			return 0, lease, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(
				"edit session %s of list %s has %d entries, of at most %d", session, list, n, c.limits.edits)}
		}
	default:
		r.Err = fmt.Errorf("code %d of redis is unknown", code)
	}
	if r.Err != nil {
		return 0, lease, fault("stage an edit of", list, noMemory(r.Err))
	}
	return staged, lease, nil
}

// Commit makes one edit of everything that a session has staged, and ends the session. It can be
// repeated. A nil quota counts nothing.
func (c *Control) Commit(
	ctx context.Context, list, session string, quota *Quota, by By,
) (revision int64, err error) {
	var found freeslot.FieldErrors
	if by.validate(&found); len(found) > 0 {
		return 0, found.Err()
	}
	h, err := c.Head(ctx, list)
	if err != nil {
		return 0, err
	}
	former := h.Op.Former // another operation does not use it
	return c.edit(ctx, &editCall{
		list: list, id: session, session: session, states: []string{string(Editing)}, limit: c.limits.edits,
		by: editBy{Author: by.Author, Note: by.Note}, fields: idle(former), quota: quota,
	})
}
