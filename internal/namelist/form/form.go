// Package form says what an id of a list is, and where an id is: its hash, its segment and its
// block. Imports, edits, readers and HTTP use it, so that they agree.
package form

// Form is what the ids of a list look like; it is fixed when the list is made.
type Form string

// The forms.
const (
	// Exact is UTF-8 of 1 to 256 bytes, without control characters and outer white space.
	Exact Form = "exact"
	// Lower is ASCII; letters are made small, and outer white space is cut.
	Lower Form = "lower"
	// Integer is a signed decimal of 64 bits in its shortest form: "007", "+7" and "-0" are refused.
	Integer Form = "integer"
)
