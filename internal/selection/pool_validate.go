package selection

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/freeslot/freeslot"
)

const (
	// MaxConfiguredPools is the most pools that a configuration can have: building a
	// class compares every node with every pool that covers it.
	MaxConfiguredPools = 256
	// MaxPoolMembers is the most nodes that one pool can name.
	MaxPoolMembers = 10000
	// MaxLanguagePairs is the most entries that Config.LanguagePairs can have, pools
	// of the same pair counted apart.
	MaxLanguagePairs = 1 << 20
)

// Problems are all bad fields of a configuration, in its order: each with the code
// invalid_argument, its path and a message that begins with it. It is an error
// unless it is empty; errors.As finds the first.
type Problems []*freeslot.Error

// Error lists the messages, one a line.
func (ps Problems) Error() string { return errors.Join(ps.Unwrap()...).Error() }

// Unwrap returns the single problems.
func (ps Problems) Unwrap() []error {
	list := make([]error, len(ps))
	for i, p := range ps {
		list[i] = p
	}
	return list
}

// orNil keeps an empty list from becoming an error that is not nil.
func (ps Problems) orNil() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) addf(field, format string, args ...any) {
	*ps = append(*ps, freeslot.Invalid(field, format, args...))
}

// add takes over a coded error; nil adds nothing.
func (ps *Problems) add(err error) {
	var coded *freeslot.Error
	if errors.As(err, &coded) {
		*ps = append(*ps, coded)
	}
}

// Validate checks the configuration. path is put before the field names ("config"
// gives "config.pools[2].labels.zone"); "" leaves them alone. The error is a
// [Problems] with every bad field.
func (c *Config) Validate(path string) error {
	var ps Problems
	if path != "" {
		path += "."
	}
	if !slices.Contains([]Mode{"", ModeTwoLevel, ModeFlat}, c.Mode) {
		ps.addf(path+"mode", "is %q, expected %s or %s", c.Mode, ModeTwoLevel, ModeFlat)
	}
	if !slices.Contains([]Policy{"", PolicyLeastLoaded, PolicyBinpack}, c.Policy) {
		ps.addf(path+"policy", "is %q, expected %s or %s", c.Policy, PolicyLeastLoaded, PolicyBinpack)
	}
	// Put so that what is no number fails too.
	if f := c.AffinityLoadFactor; f != 0 && !(f >= MinAffinityLoadFactor && f <= MaxAffinityLoadFactor) {
		ps.addf(path+"affinity_load_factor", "is %v, expected %v to %v (0 or absent means %v)", f, MinAffinityLoadFactor, MaxAffinityLoadFactor, DefaultAffinityLoadFactor)
	}
	c.Pools.problems(path+"pools", &ps)
	c.Paused.problems(path+"paused", &ps)
	return ps.orNil()
}

// Validate checks the pools alone, as [Config.Validate] does. path is their own
// ("pools" gives "pools[2].labels.zone").
func (ps Pools) Validate(path string) error {
	var found Problems
	ps.problems(path, &found)
	return found.orNil()
}

func (ps Pools) problems(path string, found *Problems) {
	if len(ps) > MaxConfiguredPools {
		found.addf(path, "has %d entries, expected at most %d", len(ps), MaxConfiguredPools)
		return
	}
	first, pairs := make(map[string]int, len(ps)), 0
	for i := range ps {
		field := element(path, i)
		ps[i].problems(field, found)
		pairs += len(ps[i].SourceLanguages) * len(ps[i].TargetLanguages)
		if j, ok := first[ps[i].ID]; ok && ps[i].ID != "" {
			found.addf(field+".id", "is %q, which %s[%d] has already", ps[i].ID, path, j)
			continue
		}
		first[ps[i].ID] = i
	}
	if pairs > MaxLanguagePairs {
		found.addf(path, "list %d pairs of a source and a target language, expected at most %d", pairs, MaxLanguagePairs)
	}
}

func (p *Pool) problems(path string, found *Problems) {
	found.add(freeslot.ValidateName(path+".id", p.ID))
	if len(p.Members) > MaxPoolMembers {
		found.addf(path+".members", "has %d entries, expected at most %d", len(p.Members), MaxPoolMembers)
	} else {
		for i, id := range p.Members {
			found.add(freeslot.ValidateName(element(path+".members", i), id))
		}
	}
	languageProblems(path+".source_languages", p.SourceLanguages, found)
	languageProblems(path+".target_languages", p.TargetLanguages, found)
	if len(p.Services) > freeslot.MaxServices {
		found.addf(path+".services", "has %d entries, expected at most %d", len(p.Services), freeslot.MaxServices)
	} else {
		for i, entry := range p.Services {
			found.add(freeslot.ValidateService(element(path+".services", i), entry))
		}
	}
	labelProblems(path+".labels", p.Labels, found)
}

func languageProblems(path string, tags []string, found *Problems) {
	if len(tags) > freeslot.MaxLanguages {
		found.addf(path, "has %d entries, expected at most %d", len(tags), freeslot.MaxLanguages)
		return
	}
	for i, tag := range tags {
		if _, err := language.Parse(tag); err != nil || len(tag) > freeslot.MaxNameLength {
			found.addf(element(path, i), "is %q, expected a BCP 47 language tag such as de or zh-Hant-TW of at most %d characters", tag, freeslot.MaxNameLength)
		}
	}
}

func labelProblems(path string, labels map[string]string, found *Problems) {
	if len(labels) > freeslot.MaxLabels {
		found.addf(path, "has %d entries, expected at most %d", len(labels), freeslot.MaxLabels)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := freeslot.ValidateName(path+" name", name); err != nil {
			found.add(err)
			continue
		}
		control := strings.ContainsFunc(labels[name], func(r rune) bool { return r < 0x20 || r == 0x7f })
		if control || len(labels[name]) > freeslot.MaxLabelValueLength {
			found.addf(path+"."+name, "is not a label value, expected at most %d bytes without control characters", freeslot.MaxLabelValueLength)
		}
	}
}

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
