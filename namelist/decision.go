package namelist

import (
	"encoding/json"
	"fmt"

	"github.com/freeslot/freeslot/internal/namelist/chain"
)

// Subject is who or what a chain decides for.
type Subject struct {
	// Key identifies the subject, such as a user's id; empty counts as missing.
	Key string
	// Attributes holds what rules may read: string, bool, any type of integer, float32 or float64. A
	// missing one, a nil, or one of another type than declared makes a rule unknown. Attributes that
	// the chain does not declare are ignored.
	Attributes map[string]any
}

// Outcome is what a chain decides. The zero value is OutcomeUnknown.
type Outcome uint8

// The outcomes.
const (
	OutcomeUnknown Outcome = iota
	OutcomeAllow
	OutcomeDeny
	OutcomeVariant
)

func (o Outcome) String() string { return chain.Result(o).String() }

// ChainReason says what led to a decision. The zero value means none.
type ChainReason uint8

// The reasons. With the last three there is no chain to decide by, and the outcome is unknown.
const (
	ChainReasonNone         ChainReason = iota
	ChainReasonRule                     // a rule matched
	ChainReasonUnknownMatch             // a rule was unknown, and says that it matches then
	ChainReasonDefault                  // no rule decided
	ChainReasonStopped                  // a rule was unknown, and says that the outcome is unknown then
	ChainReasonChainUnknown             // the chain does not exist
	ChainReasonNotLoaded                // the chain is not in memory
	ChainReasonFormat                   // this release does not know the chain's format
)

func (r ChainReason) String() string { return chain.Reason(r).String() }

// Doubt says why a rule was unknown. The zero value means that no rule was.
type Doubt struct {
	Rule string
	// List is the list that did not know; Attribute is the attribute that is missing or has another
	// type. At most one of them is set.
	List, Attribute string
	// Why is the reason in words.
	Why string
}

func (d Doubt) String() string {
	switch {
	case d.Rule == "":
		return "none"
	case d.List != "":
		return fmt.Sprintf("rule %s: list %s: %s", d.Rule, d.List, d.Why)
	case d.Attribute != "":
		return fmt.Sprintf("rule %s: %s: %s", d.Rule, d.Attribute, d.Why)
	default:
		return fmt.Sprintf("rule %s: %s", d.Rule, d.Why)
	}
}

// ListVersion names the state of a list that was asked: its version, with its edits up to a
// revision. Both are 0 if the list is not there.
type ListVersion struct {
	List              string
	Version, Revision int64
}

// Decision is what a chain decides for a subject. The zero value is unknown.
type Decision struct {
	Outcome Outcome
	// Variant and Value are set if Outcome is OutcomeVariant. Value is JSON, nil if the variant has
	// none. Decisions share it, so do not change it.
	Variant string
	Value   json.RawMessage
	// Rule is the name of the rule that decided, and Kind its kind: in, expression, percentage or
	// window. Both are empty for the default.
	Rule   string
	Kind   string
	Reason ChainReason
	// Doubt is about the rule that decided, if that was unknown, else about the first rule that was
	// unknown and skipped.
	Doubt Doubt
	// Stale is true if no news came for three seconds of the chain, or of a list that was asked.
	Stale bool
	// Version is the version of the chain, 0 without one.
	Version int64

	asked chain.Asked
}

// Versions returns the states of all lists that were asked, in the order of the rules.
func (d Decision) Versions() []ListVersion {
	all := d.asked.Versions()
	out := make([]ListVersion, len(all))
	for i, v := range all {
		out[i] = ListVersion(v)
	}
	return out
}
