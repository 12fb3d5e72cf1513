// Package form defines what an id of a list is, and where an id is: its hash, its segment and its
// block. Imports, edits, readers and HTTP all use it, so that they agree. docs/design/namelist.md
// has test vectors for readers in other languages.
package form

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// MaxBytes is the length of the longest id.
const MaxBytes = 256

// CompactBytes is the length of the longest id that Redis keeps in its compact encoding of a hash.
const CompactBytes = 64

// Form says what the ids of a list look like; it is fixed when the list is made.
type Form string

// The forms.
const (
	// Exact is UTF-8 of 1 to 256 bytes, without control characters and outer white space.
	Exact Form = "exact"
	// Lower is printable ASCII of 1 to 256 bytes. Letters are turned into lower case, and outer
	// white space is removed.
	Lower Form = "lower"
	// Integer is a signed decimal of 64 bits in its shortest form: "007", "+7" and "-0" are
	// refused.
	Integer Form = "integer"
)

// Forms returns all forms.
func Forms() []Form { return []Form{Exact, Lower, Integer} }

// Hash names the function of Sum in heads and wire forms.
const Hash = "xxh3-64"

// Error says why an id cannot be in a list.
type Error struct{ Why string }

func (e *Error) Error() string { return "invalid id: " + e.Why }

// The reasons. They are made once, so that returning an error costs a reader nothing.
var (
	errEmpty   = &Error{"it is empty"}
	errLong    = &Error{fmt.Sprintf("it is longer than %d bytes", MaxBytes)}
	errUTF8    = &Error{"it is not UTF-8"}
	errControl = &Error{"it has a control character"}
	errSpace   = &Error{"it begins or ends with white space"}
	errASCII   = &Error{"it has characters that are not printable ASCII"}
	errInteger = &Error{"it is not a whole number of 64 bits in its shortest form"}
	errForm    = &Error{"this release does not know the list's form of ids"}
)

// Clean returns the id as it is stored. It allocates only if it changes the id. Errors: *Error.
func (f Form) Clean(id string) (string, error) {
	if f == Lower {
		id = strings.Trim(id, " \t\r\n\v\f")
	}
	switch {
	case id == "":
		return "", errEmpty
	case len(id) > MaxBytes:
		return "", errLong
	}
	switch f {
	case Exact:
		return id, exact(id)
	case Lower:
		return lower(id)
	case Integer:
		return id, integer(id)
	default:
		return "", errForm
	}
}

func exact(id string) error {
	ascii := true
	for i := range len(id) {
		switch c := id[i]; {
		case c < ' ' || c == 0x7f:
			return errControl
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if ascii {
		if id[0] == ' ' || id[len(id)-1] == ' ' {
			return errSpace
		}
		return nil
	}
	if !utf8.ValidString(id) {
		return errUTF8
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return errControl
		}
	}
	first, _ := utf8.DecodeRuneInString(id)
	last, _ := utf8.DecodeLastRuneInString(id)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return errSpace
	}
	return nil
}

func lower(id string) (string, error) {
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return "", errASCII
		}
	}
	return strings.ToLower(id), nil
}

func integer(id string) error {
	digits := strings.TrimPrefix(id, "-")
	if digits == "" || digits[0] < '0' || digits[0] > '9' || digits[0] == '0' && id != "0" {
		return errInteger
	}
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return errInteger
	}
	return nil
}

// Sum returns the hash of an id that Clean has returned: XXH3-64 with the list's seed.
func Sum(seed uint64, id string) uint64 { return xxh3.HashStringSeed(id, seed) }

// Segment returns which of n segments has the id with this hash: the high half of hash * n. So
// segments are in the order of hashes.
func Segment(hash uint64, n uint32) uint32 {
	high, _ := bits.Mul64(hash, uint64(n))
	return uint32(high)
}

// Block returns which of 2^blockBits blocks has the id with this hash: the top bits of hash.
func Block(hash uint64, blockBits uint8) uint32 { return uint32(hash >> (64 - blockBits)) }

// Digest is a sum over entries that does not depend on their order. The zero value is the digest of
// no entries. It finds losses and mix-ups, not forgeries.
type Digest struct{ high, low, count uint64 }

// Add adds an entry: the id as Clean returned it, and its expiry in Unix ms, 0 for never.
func (d *Digest) Add(id string, expiresMS int64) {
	sum := xxh3.HashString128Seed(id, uint64(expiresMS))
	var carry uint64
	d.low, carry = bits.Add64(d.low, sum.Lo, 0)
	d.high, _ = bits.Add64(d.high, sum.Hi, carry)
	d.count++
}

// Join adds the entries of another digest.
func (d *Digest) Join(other Digest) {
	var carry uint64
	d.low, carry = bits.Add64(d.low, other.low, 0)
	d.high, _ = bits.Add64(d.high, other.high, carry)
	d.count += other.count
}

// Count returns how many entries were added.
func (d *Digest) Count() int64 { return int64(d.count) }

func (d *Digest) String() string { return fmt.Sprintf("%016x%016x-%d", d.high, d.low, d.count) }
