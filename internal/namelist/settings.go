package namelist

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/form"
)

// Bounds of settings.
const (
	// MaxExpected is the largest number of ids that a list can be expected to have.
	MaxExpected = 1_000_000_000
	// MaxWhole is the largest number of ids in a list that readers hold whole.
	MaxWhole = 100_000
	// maxLine is the length limit of an author, a note, or a reason, in bytes.
	maxLine = 256
)

// Spec describes a list to create.
type Spec struct {
	// Form is fixed; empty means form.Exact.
	Form form.Form
	// Server names a list server, which only a move changes; empty means the control server.
	Server string
	// Expected is the number of ids that the list is expected to have; 0 if not stated.
	Expected int64
	Settings
	// Owner is the application that owns the list.
	Owner ListOwner
}

// Settings holds what can change while a list exists.
type Settings struct {
	// Filter is the kind for the next builds; empty means filter.Fuse.
	Filter filter.Kind
	// Expires, ExpiredNo and Whole are as in Head.
	Expires   time.Time
	ExpiredNo bool
	Whole     bool
}

// By says who changes a list, and why.
type By struct {
	// Author and Note are lines of up to 256 bytes.
	Author string `json:"author,omitzero"`
	Note   string `json:"note,omitzero"`
}

// Validate returns the error of texts that are no lines of up to 256 bytes.
func (b By) Validate() error {
	var found freeslot.FieldErrors
	b.validate(&found)
	return found.Err()
}

func (b By) validate(found *freeslot.FieldErrors) {
	line(found, "author", b.Author)
	line(found, "note", b.Note)
}

// why returns By in the form of a record.
func (b By) why() string {
	if b.Note == "" {
		return b.Author
	}
	return b.Author + ": " + b.Note
}

func line(found *freeslot.FieldErrors, field, s string) {
	if len(s) > maxLine || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		found.Addf(field, "is no line of at most %d bytes", maxLine)
	}
}

func (s Spec) withDefaults() Spec {
	if s.Form == "" {
		s.Form = form.Exact
	}
	s.Settings = s.Settings.withDefaults()
	return s
}

func (s Settings) withDefaults() Settings {
	if s.Filter == "" {
		s.Filter = filter.Fuse
	}
	return s
}

func (s *Spec) validate(found *freeslot.FieldErrors) {
	if !slices.Contains(form.Forms(), s.Form) {
		found.Addf("form", "is %q, expected one of %q", s.Form, form.Forms())
	}
	if s.Server != "" {
		found.Add(freeslot.ValidateName("server", s.Server))
	}
	if s.Expected < 0 || s.Expected > MaxExpected {
		found.Addf("expected_ids", "is %d, expected 0 to %d", s.Expected, MaxExpected)
	}
	s.Settings.validate(found, s.Expected)
}

func (s *Settings) validate(found *freeslot.FieldErrors, expected int64) {
	switch s.Filter {
	case filter.Fuse, filter.Bloom, filter.None:
	default:
		found.Addf("filter", "is %q, expected fuse, bloom or none", s.Filter)
	}
	if s.Whole && expected > MaxWhole {
		found.Addf("whole", "is set for %d expected ids, expected at most %d", expected, MaxWhole)
	}
	if !s.Expires.IsZero() && s.Expires.UnixMilli() <= 0 {
		found.Addf("expires", "is before 1970")
	}
}

// fields returns the settings in the form of a record.
func (s *Settings) fields() []string {
	expires, expired, whole := int64(0), "unknown", ""
	if !s.Expires.IsZero() {
		expires = s.Expires.UnixMilli()
	}
	if s.ExpiredNo {
		expired = "no"
	}
	if s.Whole {
		whole = "1"
	}
	return []string{"filter", string(s.Filter), "expires", number(expires), "on_expired", expired, "whole", whole}
}
