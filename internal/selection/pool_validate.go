package selection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/freeslot/freeslot"
)

// MaxConfiguredPools is the most pools that a configuration can have: building a
// class compares every node with every pool that covers it.
const MaxConfiguredPools = 256

// Validate checks the configuration. path is put before the field names
// ("pools" gives "pools[2].labels.zone"). The error is a *freeslot.Error with
// code invalid_argument for the first bad field.
func (ps Pools) Validate(path string) error {
	if len(ps) > MaxConfiguredPools {
		return invalid(path, "has %d entries, expected at most %d", len(ps), MaxConfiguredPools)
	}
	first := make(map[string]int, len(ps))
	for i := range ps {
		field := fmt.Sprintf("%s[%d]", path, i)
		if err := ps[i].validate(field); err != nil {
			return err
		}
		if j, ok := first[ps[i].ID]; ok {
			return invalid(field+".id", "is %q, which %s[%d] has already", ps[i].ID, path, j)
		}
		first[ps[i].ID] = i
	}
	return nil
}

func (p *Pool) validate(path string) error {
	if err := freeslot.ValidateName(path+".id", p.ID); err != nil {
		return err
	}
	if err := validateLanguages(path+".source_languages", p.SourceLanguages); err != nil {
		return err
	}
	if err := validateLanguages(path+".target_languages", p.TargetLanguages); err != nil {
		return err
	}
	if err := validateServices(path+".services", p.Services); err != nil {
		return err
	}
	return validateLabels(path+".labels", p.Labels)
}

func validateLanguages(path string, tags []string) error {
	if len(tags) > freeslot.MaxLanguages {
		return invalid(path, "has %d entries, expected at most %d", len(tags), freeslot.MaxLanguages)
	}
	for i, tag := range tags {
		if _, err := language.Parse(tag); err != nil || len(tag) > freeslot.MaxNameLength {
			return invalid(fmt.Sprintf("%s[%d]", path, i),
				"is %q, expected a BCP 47 language tag such as de or zh-Hant-TW of at most %d characters", tag, freeslot.MaxNameLength)
		}
	}
	return nil
}

func validateServices(path string, names []string) error {
	if len(names) > freeslot.MaxServices {
		return invalid(path, "has %d entries, expected at most %d", len(names), freeslot.MaxServices)
	}
	for i, name := range names {
		if err := freeslot.ValidateName(fmt.Sprintf("%s[%d]", path, i), name); err != nil {
			return err
		}
	}
	return nil
}

func validateLabels(path string, labels map[string]string) error {
	if len(labels) > freeslot.MaxLabels {
		return invalid(path, "has %d entries, expected at most %d", len(labels), freeslot.MaxLabels)
	}
	// Sorted, so that the same configuration is always refused for the same field.
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := freeslot.ValidateName(path+" name", name); err != nil {
			return err
		}
		control := strings.ContainsFunc(labels[name], func(r rune) bool { return r < 0x20 || r == 0x7f })
		if control || len(labels[name]) > freeslot.MaxLabelValueLength {
			return invalid(path+"."+name, "is not a label value, expected at most %d bytes without control characters", freeslot.MaxLabelValueLength)
		}
	}
	return nil
}

func invalid(field, format string, args ...any) *freeslot.Error {
	return &freeslot.Error{
		Code:    freeslot.CodeInvalidArgument,
		Field:   field,
		Message: field + " " + fmt.Sprintf(format, args...),
	}
}
