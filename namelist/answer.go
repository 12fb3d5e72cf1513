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

// Source says what decided an answer.
type Source uint8

// The sources.
const (
	SourceNone   Source = iota // nothing knows the id: unknown, or the whole list has expired
	SourceEdits                // an edit of the version contains it
	SourceFilter               // the version's filter excludes it
	SourceCache                // an earlier answer of Redis
	SourceRedis                // the id's segment
	SourceWhole                // all ids of the version are in memory
)

func (s Source) String() string {
	return name(s, "none", "edits", "filter", "cache", "redis", "whole")
}

// Reason says why an answer is unknown. The zero value means none.
type Reason uint8

// The reasons.
const (
	ReasonNone        Reason = iota
	ReasonListUnknown        // the list does not exist
	ReasonDeleted            // the list was deleted
	ReasonDraft              // the list has no serving version
	ReasonNotLoaded          // the list, or for Peek the id, is not in memory
	ReasonExpired            // the whole list has expired
	ReasonTimeout            // the list's server gave no answer in time
	ReasonOverloaded         // too many checks wait for Redis
	ReasonSegment            // the id's segment is missing
	ReasonMoved              // the id's segment belongs to another build
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
	// Reason says why Verdict is Unknown. A No can have ReasonExpired, too, if the list answers
	// that way after its end.
	Reason Reason
	// Stale is true if no news of the list's changes came for three seconds.
	Stale bool
	// Version is the number of the version that answers, 0 without one. The answer includes the
	// list's edits up to Revision.
	Version, Revision int64
	// AsOf is the time at which the list was last known to be at Revision, by this process' clock.
	AsOf time.Time
	// ExpiresAt is when a Yes ends, by Redis' clock; zero means never.
	ExpiresAt time.Time
}

// Member returns what the answer means to the caller, who says what unknown means here.
func (a Answer) Member(unknownMeans bool) bool {
	if a.Verdict == Unknown {
		return unknownMeans
	}
	return a.Verdict == Yes
}

// Age returns the age of the data: the answer may lack changes of the list that are younger. It is
// 0 for an answer without data.
func (a Answer) Age() time.Duration {
	if a.AsOf.IsZero() {
		return 0
	}
	return time.Since(a.AsOf)
}
