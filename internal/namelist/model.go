package namelist

import (
	"time"

	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// State is the state of a list.
type State string

// The states; states.go says what each allows.
const (
	Draft     State = "draft"
	Active    State = "active"
	Editing   State = "editing"
	Importing State = "importing"
	Expanding State = "expanding"
	Switching State = "switching"
	Frozen    State = "frozen"
	Deleting  State = "deleting"
	// Deleted is the state of a tombstone.
	Deleted State = "deleted"
)

// Head holds what readers must know of a list.
type Head struct {
	Name string
	// At is Redis' time when the head was read.
	At time.Time
	// Birth identifies one life of the list: a deleted list that is made again gets another one.
	Birth    string
	Revision int64
	State    State
	Form     form.Form
	Seed     uint64
	// Server is the name of the list server for the next builds. A version names its own.
	Server   string
	Expected int64 // number of ids that the list is expected to have; 0 if not stated
	Filter   filter.Kind
	// Expires is when the whole list ends, by Redis' clock; zero means never.
	Expires time.Time
	// ExpiredNo is true if the list answers "no" instead of "unknown" after Expires.
	ExpiredNo bool
	// Whole is true if readers hold all ids of the list.
	Whole bool
	// Serving is the version that answers; nil means none. Next is the version that clients load.
	Serving, Next *Version
	// Number is the highest version number that was ever given out.
	Number int64
	// Edited counts the entries of all edits ever made. Floor is the revision of the newest edit
	// that the log no longer has.
	Edited, Floor int64
	// Owner owns the list. Grants holds what tokens were granted, by the names
	// that [Control.Grant] takes.
	Owner  ListOwner
	Grants map[string][]May
	// Op is the operation that runs; without ID there is none. If the list is frozen or being
	// deleted, Op has its Why and Since.
	Op Operation
	// unapproved holds what a Quota counts: hour since 1970 and ids, with ':' between.
	unapproved string
	// raw holds the fields that a step compares, as the record had them.
	raw string
	// lost is true if the record names versions that do not exist.
	lost bool
}

// Operation is what an operator, or compaction, does to a list.
type Operation struct {
	ID     string `json:"id"` // random; it stays when another replica takes the operation
	Kind   OpKind `json:"kind"`
	Number int64  `json:"number"` // the version that it builds or switches to; 0 means none
	// Base and Edited are the head's Revision and Edited at its beginning.
	Base   int64  `json:"base"`
	Edited int64  `json:"edited"`
	Former State  `json:"former"`
	Holder string `json:"holder"`
	Why    string `json:"why,omitzero"`
	// Since and Lease are times of Redis' clock; the operation lapses at Lease.
	Since time.Time `json:"since"`
	Lease time.Time `json:"lease"`
	Reservation
}

// Reservation says what a build writes at most, and where. It is zero until the build knows it.
// Nothing is written before that.
type Reservation struct {
	Server   string `json:"server,omitzero"` // where it writes
	Bytes    int64  `json:"bytes,omitzero"`
	Segments uint32 `json:"segments,omitzero"`
	Blocks   uint32 `json:"blocks,omitzero"` // of the filter; a power of two, or 0
}

// OpKind is the kind of an operation.
type OpKind string

// The kinds.
const (
	OpImport  OpKind = "import"
	OpEdit    OpKind = "edit"
	OpExpand  OpKind = "expand"
	OpMove    OpKind = "move"
	OpSwitch  OpKind = "switch"
	OpCompact OpKind = "compact"
)

// Version is one immutable build of a list.
type Version struct {
	Number   int64  `json:"number"`
	Build    string `json:"build"` // 128 random bits, hex
	Server   string `json:"server"`
	Segments uint32 `json:"segments"`
	Count    int64  `json:"count"`
	// Base is the list's revision where the build began: later edits are not part of the version.
	// Edited is the list's Edited then.
	Base   int64 `json:"base"`
	Edited int64 `json:"edited"`
	// Digest is the form.Digest of all entries, hex.
	Digest string      `json:"digest"`
	Filter filter.Kind `json:"filter"`
	// BlockBits is the base-2 logarithm of the number of blocks.
	BlockBits   uint8 `json:"block_bits"`
	FilterBytes int64 `json:"filter_bytes"`
	Bytes       int64 `json:"bytes"` // of segments and blocks in Redis, measured on a sample
	// Rejected counts the refused lines of the import.
	Rejected int64 `json:"rejected,omitzero"`
	// Upload names the upload whose lines were refused; it lasts a day.
	Upload string `json:"upload,omitzero"`
	// Doubt says why someone must accept the version before it can serve; empty if no one must.
	Doubt string `json:"doubt,omitzero"`
	// Damaged says what of it was found missing; empty if nothing. A damaged version is no target
	// of a switch.
	Damaged string `json:"damaged,omitzero"`
	// DamagedMS is when that was found first, by Redis' clock; 0 if it is not damaged, or if a
	// replica of an older release found it.
	DamagedMS int64 `json:"damaged_ms,omitzero"`
	AtMS      int64 `json:"at_ms"` // when it was ready, by Redis' clock
	// VerifiedMS is when a replica last began to read it back unasked, by Redis' clock; 0 means
	// never.
	VerifiedMS int64 `json:"verified_ms,omitzero"`
	// StoppedMS is when it last stopped serving, by Redis' clock; 0 if it serves, or never did.
	StoppedMS int64  `json:"stopped_ms,omitzero"`
	Author    string `json:"author,omitzero"`
	Note      string `json:"note,omitzero"`
}

// Entry is an id with its expiry.
type Entry struct {
	ID string `json:"id"`
	// ExpiresMS is Unix ms, by Redis' clock; 0 means never.
	ExpiresMS int64 `json:"expires_ms,omitzero"`
}

// Change is one entry of an edit.
type Change struct {
	Entry

	Remove bool `json:"remove,omitzero"`
}

// Edit is a change of entries that readers see as a whole.
type Edit struct {
	Revision int64
	Changes  []Change
}
