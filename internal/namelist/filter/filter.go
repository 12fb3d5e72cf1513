// Package filter is the prefilter of a version: it says "no" for most ids that a version does not
// have, and never for one that it has.
package filter

// Kind is the kind of a filter.
type Kind string

// The kinds.
const (
	Fuse  Kind = "fuse"  // binary fuse, 8 bits: 0.4 % false positives, about 9.2 bits a key
	Bloom Kind = "bloom" // 1 % false positives, 9.6 bits a key
	None  Kind = "none"
)
