package chain

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Truth is what is known of a condition. The zero value is Unknown.
type Truth uint8

// The three truths.
const (
	Unknown Truth = iota
	True
	False
)

func (t Truth) not() Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	default:
		return Unknown
	}
}

func truth(b bool) Truth {
	if b {
		return True
	}
	return False
}

// Subject is who or what a chain decides for.
type Subject struct {
	// Key identifies the subject; empty counts as missing.
	Key string
	// Attributes may have more than a chain declares. A missing one, a nil, or one of another type
	// than declared makes conditions unknown. An integer may be any integer type of Go, or a whole
	// float64; a number may also be any of these.
	Attributes map[string]any
}

// Lists answers whether ids are in lists.
type Lists interface {
	// Ask asks the list with this index in [Chain.Lists].
	Ask(ctx context.Context, list int, id string) Membership
}

// Membership is what a list says of an id.
type Membership struct {
	Truth Truth
	// Version and Revision say what answered; 0 if nothing did.
	Version, Revision int64
	// Stale is true if the list may have changed since.
	Stale bool
	// Why says why Truth is Unknown.
	Why string
}

// Counter counts the truth of rules.
type Counter interface {
	// Rule counts one evaluation of the rule with this index. It must not block.
	Rule(rule int, is Truth)
}

// Env is what an evaluation needs besides the subject.
type Env struct {
	Lists Lists
	// Counter may be nil.
	Counter Counter
	// Now is the time for windows; zero means the process' clock.
	Now time.Time
}

// Result is what a decision says. The zero value is unknown.
type Result uint8

// The results.
const (
	Undecided Result = iota
	Allowed
	Denied
	Varied // a variant
)

func (r Result) String() string { return name(r, "unknown", "allow", "deny", "variant") }

// Reason says what led to a decision.
type Reason uint8

// The reasons.
const (
	ReasonNone         Reason = iota
	ReasonRule                // a rule matched
	ReasonUnknownMatch        // a rule was unknown, and says match
	ReasonDefault             // no rule decided
	ReasonStopped             // a rule was unknown, and says stop
	// There is no document to decide by.
	ReasonChainUnknown // the chain does not exist
	ReasonNotLoaded    // it is not in memory
	ReasonFormat       // this release does not know its format
)

func (r Reason) String() string {
	return name(
		r, "none", "rule", "unknown matches", "default", "stopped", "chain unknown", "not loaded", "format",
	)
}

func name[T ~uint8](i T, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "?"
}

// Doubt says why a condition was unknown. The zero value means that none was.
type Doubt struct {
	Rule string // the rule
	List string // the list that did not know, if it was a list
	// Attribute is the attribute that is missing or of another type, if it was an attribute.
	Attribute string
	Why       string
}

// ListVersion names the state of a list that answered.
type ListVersion struct {
	List              string
	Version, Revision int64
}

// Decision is what a chain decides. The zero value is unknown.
type Decision struct {
	Result Result
	// Variant and Value are set if Result is Varied. Value is JSON, nil if the variant has none; it
	// is shared, so do not change it.
	Variant string
	Value   json.RawMessage
	// Rule is the rule that decided, and Kind its kind; both are empty for the default. Index is its
	// index, the number of rules for the default.
	Rule   string
	Kind   Kind
	Index  int
	Reason Reason
	// Doubt is the condition of the rule that decided, if that was unknown, else the first one that
	// was unknown and skipped.
	Doubt Doubt
	// Stale is true if a list that was asked may have changed since.
	Stale bool
	// Version is the version of the chain; 0 without one.
	Version int64
	Asked   Asked
}

// fewLists is how many states of lists an Asked holds without an allocation.
const fewLists = 4

// Asked holds the states of the lists that were asked. The zero value is empty.
type Asked struct {
	few   [fewLists]ListVersion
	count int
	more  []ListVersion
}

// Versions returns the states in the order of the questions, each once.
func (a *Asked) Versions() []ListVersion {
	return append(append([]ListVersion(nil), a.few[:a.count]...), a.more...)
}

func (a *Asked) add(v ListVersion) {
	for i := range a.count {
		if a.few[i] == v {
			return
		}
	}
	switch {
	case a.count < fewLists:
		a.few[a.count] = v
		a.count++
	case !slices.Contains(a.more, v):
		a.more = append(a.more, v)
	}
}
