package namelist

import "time"

// Verdict is what an answer says. The zero value is Unknown.
type Verdict uint8

// The verdicts.
const (
	Unknown Verdict = iota
	Yes
	No
)

func (v Verdict) String() string { return name(v, "unknown", "yes", "no") }

// Source is what decided an answer.
type Source uint8

// The sources.
const (
	SourceNone   Source = iota // nothing has the id: unknown, or the whole list has expired
	SourceEdits                // an edit of the version has it
	SourceFilter               // the version's filter does not have it
	SourceCache                // an earlier answer of Redis
	SourceRedis                // the id's segment
	SourceWhole                // all ids of the version are in memory
)

func (s Source) String() string {
	return name(s, "none", "edits", "filter", "cache", "redis", "whole")
}

// Reason is why an answer is unknown. The zero value is none.
type Reason uint8

// The reasons.
const (
	ReasonNone        Reason = iota
	ReasonListUnknown        // there is no such list
	ReasonDeleted            // the list was deleted
	ReasonDraft              // the list has no version that serves
	ReasonNotLoaded          // the list, or for Peek the id, is not in memory
	ReasonExpired            // the whole list has expired
	ReasonTimeout            // the list's server gave no answer in time
	ReasonOverloaded         // too many checks wait for Redis
	ReasonSegment            // the id's segment is missing
	ReasonMoved              // the id's segment is of another build
	ReasonInvalidID          // the list cannot have such an id
	ReasonFormat             // this release does not know the list's format
)

func (r Reason) String() string {
	return name(r, "none", "list unknown", "deleted", "draft", "not loaded", "expired", "timeout", "overloaded",
		"segment missing", "moved", "invalid id", "format")
}

func name[T ~uint8](i T, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "?"
}

// Answer is what is known of an id. The zero value is unknown.
type Answer struct {
	Verdict Verdict
	Source  Source
	// Reason is why Verdict is Unknown. ReasonExpired is also that of a No for a list that answers
	// so after its end.
	Reason Reason
	// Stale says that nothing was heard of the list's changes for three seconds.
	Stale bool
	// Version is the number of the version that answers, 0 without one. Revision is up to which the
	// list's edits are in the answer.
	Version, Revision int64
	// AsOf is when the list was last known to be at Revision, by this process' clock.
	AsOf time.Time
	// ExpiresAt is when a Yes ends, by Redis' clock; zero is never.
	ExpiresAt time.Time
}

// Member is what the answer means to the caller, who says what unknown means here.
func (a Answer) Member(unknownMeans bool) bool {
	if a.Verdict == Unknown {
		return unknownMeans
	}
	return a.Verdict == Yes
}

// Age is for how long changes of the list may not be in the answer. It is 0 for an answer without
// data.
func (a Answer) Age() time.Duration {
	if a.AsOf.IsZero() {
		return 0
	}
	return time.Since(a.AsOf)
}
