package namelist

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/freeslot/freeslot"
)

// codeUndecided is what scripts return if the request of a decision cannot be approved.
const codeUndecided = 6

// Decision approves a request. The script that makes the change approves the request in the same
// step, so that both happen or neither does, and of two decisions one wins.
type Decision struct {
	ID string `json:"id"` // of the request
	By string `json:"by"`
	// Digest is of the change and the target as they are now.
	Digest  string `json:"digest"`
	Comment string `json:"comment"`

	tenant string
	done   bool
}

type decisionKey struct{}

// Deciding returns a context whose next change of a list, a chain or an application carries the
// decision out. It is for one goroutine.
func Deciding(ctx context.Context, d *Decision) (context.Context, error) {
	tenant, err := tenantOf(d.ID)
	if err != nil {
		return ctx, err
	}
	d.tenant = tenant
	return context.WithValue(ctx, decisionKey{}, d), nil
}

// decision returns what a script needs of the decision that ctx carries: an argument, and its last
// key.
func (c *Control) decision(ctx context.Context) (d *Decision, arg string, keys []string) {
	d, _ = ctx.Value(decisionKey{}).(*Decision)
	if d == nil || d.done {
		return nil, "", []string{c.k.requests("")} // a key that the script does not touch
	}
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // it has texts alone
	}
	return d, string(text), []string{c.k.requests(d.tenant)}
}

// carriedOut ends a decision, so that later steps of the same call do without it.
func (d *Decision) carriedOut() {
	if d != nil {
		d.done = true
	}
}

// Decidable returns the error of a request that was decided, has lapsed or is outdated, or nil.
func (r *ChangeRequest) Decidable() error {
	if r.State == RequestPending {
		return nil
	}
	return undecided(r.ID, string(r.State))
}

// undecided returns the error of a request that cannot be decided.
func undecided(id, why string) error {
	text, code := "", freeslot.CodeConflict
	switch why {
	case "gone":
		return NoRequest(id)
	case "own":
		code, text = freeslot.CodePermissionDenied, "is the caller's own: somebody else decides"
	case "other":
		code, text = freeslot.CodePermissionDenied, "is another caller's: an admin decides"
	case string(RequestConflict):
		text = "was made for another state: what it changes has moved on; make the change anew"
	case string(RequestLapsed):
		text = "has lapsed"
	default:
		text = "is " + why + " already"
	}
	return &freeslot.Error{Code: code, Field: "request", Message: fmt.Sprintf("request %s %s", id, text)}
}
