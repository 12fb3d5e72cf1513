package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/freeslot/freeslot"
)

const (
	// MaxConfiguredPools is the most pools that a configuration can have: building a class compares
	// every node with every pool that covers the class.
	MaxConfiguredPools = 256
	// MaxPoolMembers is the most nodes that one pool can name.
	MaxPoolMembers = 10000
	// MaxLanguagePairs is the most entries that Config.LanguagePairs can have. Two pools of one
	// pair are two entries.
	MaxLanguagePairs = 1 << 20
)

// Validate checks the configuration. path precedes the field names ("config" gives
// "config.pools[2].labels.zone"); "" adds nothing. The result has every bad field, in the
// configuration's order.
func (c *Config) Validate(path string) (found freeslot.FieldErrors) {
	if path != "" {
		path += "."
	}
	if !slices.Contains([]Mode{"", ModeTwoLevel, ModeFlat}, c.Mode) {
		found.Addf(path+"mode", "is %q, expected %s or %s", c.Mode, ModeTwoLevel, ModeFlat)
	}
	if !slices.Contains([]Policy{"", PolicyLeastLoaded, PolicyBinpack}, c.Policy) {
		found.Addf(path+"policy", "is %q, expected %s or %s", c.Policy, PolicyLeastLoaded, PolicyBinpack)
	}
	// The negation makes NaN fail, too.
	if f := c.AffinityLoadFactor; f != 0 && !(f >= MinAffinityLoadFactor && f <= MaxAffinityLoadFactor) {
		found.Addf(
			path+"affinity_load_factor", "is %v, expected %v to %v (0 or absent means %v)", f, MinAffinityLoadFactor,
			MaxAffinityLoadFactor, DefaultAffinityLoadFactor,
		)
	}
	c.Pools.validate(path+"pools", &found)
	c.Paused.validate(path+"paused", &found)
	return found
}

// Validate checks the pools alone, as [Config.Validate] does. path is the path of the pools
// ("pools" gives "pools[2].labels.zone").
func (ps Pools) Validate(path string) (found freeslot.FieldErrors) {
	ps.validate(path, &found)
	return found
}

func (ps Pools) validate(path string, found *freeslot.FieldErrors) {
	if len(ps) > MaxConfiguredPools {
		found.Addf(path, "has %d entries, expected at most %d", len(ps), MaxConfiguredPools)
		return
	}
	first, pairs := make(map[string]int, len(ps)), 0
	for i := range ps {
		field := element(path, i)
		ps[i].validate(field, found)
		pairs += len(ps[i].SourceLanguages) * len(ps[i].TargetLanguages)
		if j, ok := first[ps[i].ID]; ok && ps[i].ID != "" {
			found.Addf(field+".id", "is %q, which %s[%d] has already", ps[i].ID, path, j)
			continue
		}
		first[ps[i].ID] = i
	}
	if pairs > MaxLanguagePairs {
		found.Addf(path, "list %d pairs of a source and a target language, expected at most %d", pairs, MaxLanguagePairs)
	}
}

func (p *Pool) validate(path string, found *freeslot.FieldErrors) {
	found.Add(freeslot.ValidateName(path+".id", p.ID))
	if len(p.Members) > MaxPoolMembers {
		found.Addf(path+".members", "has %d entries, expected at most %d", len(p.Members), MaxPoolMembers)
	} else {
		for i, id := range p.Members {
			found.Add(freeslot.ValidateName(element(path+".members", i), id))
		}
	}
	validateLanguages(path+".source_languages", p.SourceLanguages, found)
	validateLanguages(path+".target_languages", p.TargetLanguages, found)
	if len(p.Services) > freeslot.MaxServices {
		found.Addf(path+".services", "has %d entries, expected at most %d", len(p.Services), freeslot.MaxServices)
	} else {
		for i, entry := range p.Services {
			found.Add(freeslot.ValidateService(element(path+".services", i), entry))
		}
	}
	validateLabels(path+".labels", p.Labels, found)
	p.validateExpects(path, found)
	p.validateTarget(path, found)
}

func validateLanguages(path string, tags []string, found *freeslot.FieldErrors) {
	if len(tags) > freeslot.MaxLanguages {
		found.Addf(path, "has %d entries, expected at most %d", len(tags), freeslot.MaxLanguages)
		return
	}
	for i, tag := range tags {
		if _, err := language.Parse(tag); err != nil || len(tag) > freeslot.MaxNameLength {
			found.Addf(
				element(path, i), "is %q, expected a BCP 47 language tag such as de or zh-Hant-TW of at most %d characters", tag,
				freeslot.MaxNameLength,
			)
		}
	}
}

func validateLabels(path string, labels map[string]string, found *freeslot.FieldErrors) {
	if len(labels) > freeslot.MaxLabels {
		found.Addf(path, "has %d entries, expected at most %d", len(labels), freeslot.MaxLabels)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := freeslot.ValidateName(path+" name", name); err != nil {
			found.Add(err)
			continue
		}
		control := strings.ContainsFunc(labels[name], func(r rune) bool { return r < 0x20 || r == 0x7f })
		if control || len(labels[name]) > freeslot.MaxLabelValueLength {
			found.Addf(
				path+"."+name, "is not a label value, expected at most %d bytes without control characters",
				freeslot.MaxLabelValueLength,
			)
		}
	}
}

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
