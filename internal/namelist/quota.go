package namelist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// codeBeyond is what scripts return if a change needs approval because of those before it.
const codeBeyond = 7

// quotaHours is for how many hours changes without approval are added up, beside the present one.
const quotaHours = 24

// Quota adds a change to those that a list has had without approval in the last 24 hours, to the
// hour. With a decision it begins anew. A nil *Quota counts nothing.
type Quota struct {
	// IDs is how many ids change; an edit counts its entries itself.
	IDs int64
	// Most is how many may change; -1 stands for any number.
	Most int64
}

// ids and most return the arguments of a script.
func (q *Quota) ids() string {
	if q == nil {
		return "0"
	}
	return number(q.IDs)
}

func (q *Quota) most() string {
	if q == nil {
		return ""
	}
	return number(q.Most)
}

// QuotaError refuses a change that needs approval because of earlier ones.
type QuotaError struct {
	// Before is how many ids these have changed, and Most how many may change.
	Before, Most int64
}

// Error implements error.
func (e *QuotaError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error for clients.
func (e *QuotaError) Unwrap() error {
	return &freeslot.Error{Code: freeslot.CodeConflict, Message: fmt.Sprintf(
		"the change needs approval: %d ids were changed without it in the last 24 hours, and at most %d may be", e.Before,
		e.Most)}
}

// Unapproved returns how many ids were changed without approval in the 24 hours before the head was
// read. It counts while there is a policy.
func (h *Head) Unapproved() (ids int64) {
	for one := range strings.FieldsSeq(h.unapproved) {
		at, n, _ := strings.Cut(one, ":")
		hour, bad := strconv.ParseInt(at, 10, 64)
		if bad == nil && h.At.UnixMilli()/3_600_000-hour <= quotaHours {
			count, _ := strconv.ParseInt(n, 10, 64)
			ids += count
		}
	}
	return ids
}
