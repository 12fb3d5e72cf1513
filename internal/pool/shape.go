package pool

import (
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// maxPairEntries bounds the work of building the index of language pairs. Each pool that covers a
// pair counts.
const maxPairEntries = 1 << 20

// normal returns cfg with defaults applied, so that equal configurations look equal.
func normal(cfg *selection.Config) *selection.Config {
	out := cfg.WithDefaults()
	if out.Pools == nil {
		out.Pools = selection.Pools{}
	}
	if out.Paused != nil {
		out.Paused = out.Paused.Normal() // in a change, an empty one differs from an absent one
	}
	return &out
}

// validate returns every bad field.
func validate(cfg *selection.Config) freeslot.FieldErrors {
	bad := cfg.Validate(root)
	if len(bad) == 0 {
		_, err := pairs(cfg)
		bad.Add(err)
	}
	return bad
}

// pairs returns the index of language pairs in its stored form.
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
	if len(index) > maxPairs {
		return nil, tooMany(len(index), maxPairs)
	}
	out := make(map[string]string, len(index))
	for pair, pools := range index {
		out[pair] = strings.Join(pools, ",")
	}
	return out, nil
}
