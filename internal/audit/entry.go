package audit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

// maxReason and maxText are the length limits of a reason, and of every other text of an entry, in
// bytes.
const (
	maxReason = 256
	maxText   = 512
)

// Outcomes of a change besides the code of its error.
const (
	// OutcomeDone means that the change was made.
	OutcomeDone = "done"
	// OutcomeDryRun means that the caller asked what the change would do, and nothing was changed.
	OutcomeDryRun = "dry_run"
	// OutcomeUnderWay means that the change began a moment ago.
	OutcomeUnderWay = "under_way"
	// OutcomeUnknown means that the end of the change was never recorded: its replica died, or
	// lost Redis. The change may have been made.
	OutcomeUnknown = "unknown"
)

// Entry is one change.
type Entry struct {
	// ID is a ULID. It also names the request in the answer and in the log.
	ID string `json:"id" doc:"Names the change, and the request in its answer and in the log."`
	// AtMS is when the change began, by the replica's clock, in milliseconds since 1970. TookMS is
	// how long it took.
	AtMS   int64 `json:"at_ms" doc:"When the change began, by the replica's clock, in milliseconds since 1970."`
	TookMS int64 `json:"took_ms,omitempty" doc:"How long it took, in milliseconds."`
	// EndedMS is when it ended, by the clock of the first cell's Redis; 0 while it is under way.
	EndedMS int64 `json:"ended_ms,omitempty" doc:"When it ended, by Redis' clock, in milliseconds since 1970."`
	// Call is the operation or the frame, as in the table of docs/security.md, or what schedctl did
	// in Redis itself.
	Call string `json:"call" doc:"The operation of this document, the frame of a WebSocket, or import-nodes or apply-acl of schedctl."`
	// Target is what was changed: the path of the request, or a job's id.
	Target string `json:"target" doc:"What was changed: the path of the request, or a job."`
	// Name, Role, Tenant and Address say who made the change, by its token, and from where.
	Name    string `json:"name,omitempty" doc:"The name of the caller's token; for the role redis, the user of Redis."`
	Role    string `json:"role" doc:"The caller's role; redis for what schedctl did in Redis itself."`
	Tenant  string `json:"tenant"`
	Address string `json:"address,omitempty" doc:"The address that the request came from; for the role redis, user@machine as the caller says."`
	Replica string `json:"replica" doc:"The replica that made the change, or schedctl."`
	// Reason is for people; "" if the caller gave none.
	Reason string `json:"reason,omitempty" doc:"Why, as the caller said in the header Freeslot-Reason."`
	// Before and After describe the state in short, as far as the call knows them.
	Before string `json:"before,omitempty" doc:"What was there before, in short, where the call knows it."`
	After  string `json:"after,omitempty" doc:"What is there now, in short, where the call knows it."`
	// Outcome is one of the constants above, or the code of an error.
	Outcome string `json:"outcome" doc:"done, dry_run where nothing was changed because that was asked for, under_way, unknown where the replica died meanwhile, or the code of the error."`
}

// Filter selects entries. The zero value selects all.
type Filter struct {
	// SinceMS and UntilMS bound AtMS; 0 means no bound. UntilMS is not included.
	SinceMS, UntilMS int64
	// Name, Role, Tenant, Call and Outcome must be equal, unless they are "".
	Name, Role, Tenant, Call, Outcome string
	// Target must be a part of the entry's.
	Target string
}

func (f *Filter) matches(e *Entry) bool {
	equal := func(want, got string) bool { return want == "" || want == got }
	return e.AtMS >= f.SinceMS && (f.UntilMS == 0 || e.AtMS < f.UntilMS) &&
		equal(f.Name, e.Name) && equal(f.Role, e.Role) && equal(f.Tenant, e.Tenant) &&
		equal(f.Call, e.Call) && equal(f.Outcome, e.Outcome) && strings.Contains(e.Target, f.Target)
}

// CheckReason returns an *freeslot.Error that names the field if reason is not a line of up to 256
// bytes.
func CheckReason(field, reason string) error {
	switch {
	case len(reason) > maxReason:
		return freeslot.Invalid(field, "has %d bytes, expected at most %d", len(reason), maxReason)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return freeslot.Invalid(field, "is %q, expected text without control characters", reason)
	}
	return nil
}

// clip keeps a text short and valid.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
