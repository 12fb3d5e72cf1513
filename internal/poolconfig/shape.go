package poolconfig

import (
	"errors"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// maxPairEntries bounds the work of making the index of language pairs: pools that
// cover the same pair count each.
const maxPairEntries = 1 << 20

// normal is cfg with defaults applied, so that what means the same looks the same.
func normal(cfg *selection.Config) *selection.Config {
	out := cfg.WithDefaults()
	if out.Pools == nil {
		out.Pools = selection.Pools{}
	}
	if out.Paused != nil {
		out.Paused = out.Paused.Normal() // an empty one is not an absent one in a change
	}
	return &out
}

// validate returns every bad field.
func validate(cfg *selection.Config) []freeslot.FieldError {
	bad := codedErrors(nil, cfg.Validate(root))
	if len(bad) == 0 {
		if _, err := pairs(cfg); err != nil {
			bad = codedErrors(bad, err)
		}
	}
	return bad
}

// codedErrors appends every *freeslot.Error that err is made of.
func codedErrors(bad []freeslot.FieldError, err error) []freeslot.FieldError {
	if err == nil {
		return bad
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			bad = codedErrors(bad, e)
		}
		return bad
	}
	var e *freeslot.Error
	switch {
	case errors.As(err, &e) && len(e.Errors) > 0:
		return append(bad, e.Errors...)
	case e != nil:
		return append(bad, freeslot.FieldError{Field: e.Field, Message: e.Message})
	default:
		return append(bad, freeslot.FieldError{Field: root, Message: root + ": " + err.Error()})
	}
}

// pairs is the index of language pairs as it is stored.
func pairs(cfg *selection.Config) (map[string]string, error) {
	entries := 0
	for i := range cfg.Pools {
		p := &cfg.Pools[i]
		entries += len(p.SourceLanguages) * len(p.TargetLanguages)
	}
	tooMany := func(n, limit int) error {
		return freeslot.Invalid(root+".pools", "cover %d pairs of languages, expected at most %d", n, limit)
	}
	if entries > maxPairEntries {
		return nil, tooMany(entries, maxPairEntries)
	}
	index := cfg.LanguagePairs()
	if len(index) > cell.MaxLanguagePairs {
		return nil, tooMany(len(index), cell.MaxLanguagePairs)
	}
	out := make(map[string]string, len(index))
	for pair, pools := range index {
		out[pair] = strings.Join(pools, ",")
	}
	return out, nil
}
