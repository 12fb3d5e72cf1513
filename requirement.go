package freeslot

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// MaxServices, MaxPools, MaxLabels and MaxLanguages bound what one node offers or one
// requirement asks for.
const (
	MaxServices  = 64
	MaxPools     = 64
	MaxLabels    = 64
	MaxLanguages = 256
)

// Requirement is what a job asks of a node besides the service that runs it.
// The zero value asks for nothing.
type Requirement struct {
	// Pool restricts the choice to the members of one pool.
	Pool string `json:"pool,omitempty"`
	// Services are further services that the node must have installed.
	Services []string `json:"services,omitempty"`
	// SourceLanguage and TargetLanguage are BCP 47 tags. The node must
	// understand the first and produce the second; either may stand alone. They
	// are looked up as RFC 4647 section 3.4 says: "de-AT" finds a node that
	// offers "de", but "de" does not find one that offers only "de-AT".
	SourceLanguage string `json:"source_language,omitempty"`
	TargetLanguage string `json:"target_language,omitempty"`
	// Labels must all be on the node with these very values.
	Labels map[string]string `json:"labels,omitempty"`
}

func (r *Requirement) validate(path string) error {
	if r.Pool != "" {
		if err := ValidateName(path+".pool", r.Pool); err != nil {
			return err
		}
	}
	if len(r.Services) > MaxServices {
		return invalid(path+".services", "has %d entries, expected at most %d", len(r.Services), MaxServices)
	}
	for _, s := range r.Services {
		if err := ValidateName(path+".services", s); err != nil {
			return err
		}
	}
	for field, tag := range map[string]string{"source_language": r.SourceLanguage, "target_language": r.TargetLanguage} {
		if tag == "" {
			continue
		}
		if err := validateLanguage(path+"."+field, tag); err != nil {
			return err
		}
	}
	if len(r.Labels) > MaxLabels {
		return invalid(path+".labels", "has %d entries, expected at most %d", len(r.Labels), MaxLabels)
	}
	return validateLabels(path+".labels", r.Labels)
}

func validateLanguage(field, tag string) error {
	if len(tag) > MaxNameLength {
		return invalid(field, "is longer than %d characters, expected a BCP 47 language tag such as de or zh-Hant-TW", MaxNameLength)
	}
	if _, err := language.Parse(tag); err != nil {
		return invalid(field, "is %q, expected a BCP 47 language tag such as de or zh-Hant-TW", tag)
	}
	return nil
}

// AppendClass appends the canonical form of "service with requirement r" to
// dst. Two jobs have the same class, and so fit the same nodes, exactly when
// their canonical forms are equal: order and repetition of services, order of
// labels and letter case of languages make no difference. r must be valid.
func (r *Requirement) AppendClass(dst []byte, service string) []byte {
	services := append(slices.Clone(r.Services), service)
	slices.Sort(services)
	dst = append(dst, "s="...)
	dst = append(dst, strings.Join(slices.Compact(services), ",")...)
	dst = append(dst, " p="...)
	dst = append(dst, r.Pool...)
	dst = append(dst, " l="...)
	dst = append(dst, canonicalTag(r.SourceLanguage)...)
	dst = append(dst, '>')
	dst = append(dst, canonicalTag(r.TargetLanguage)...)
	names := make([]string, 0, len(r.Labels))
	for name := range r.Labels {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		dst = append(dst, "\x00"...)
		dst = append(dst, name...)
		dst = append(dst, '=')
		dst = append(dst, r.Labels[name]...)
	}
	return dst
}

// canonicalTag folds the spellings of one tag: letter case, and '_' for '-'.
func canonicalTag(tag string) string {
	return strings.ReplaceAll(strings.ToLower(tag), "_", "-")
}
