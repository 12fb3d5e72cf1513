package freeslot

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/text/language"
)

// MaxServices, MaxPools, MaxLabels, MaxFeatures and MaxLanguages bound what one node offers or one
// requirement asks for.
const (
	MaxServices  = 64
	MaxPools     = 64
	MaxLabels    = 64
	MaxFeatures  = 64
	MaxLanguages = 256
)

// Requirement is what a job asks of a node besides the service that runs it. The zero value asks
// for nothing.
type Requirement struct {
	// Pool restricts the choice to the members of one pool.
	Pool string `json:"pool,omitempty"`
	// PreferredPool is tried first; the other fitting nodes come after it. It does not change which
	// nodes fit.
	PreferredPool string `json:"preferred_pool,omitempty"`
	// Services are further services that the node must have installed, each optionally with a range
	// of versions: "asr", "asr@>=1.2 <2", "asr@^1.4"; see [ParseVersionRange]. The job's own
	// service may be listed too, to give it a range.
	Services []string `json:"services,omitempty"`
	// SourceLanguage and TargetLanguage are BCP 47 tags. The node must understand the first and
	// produce the second; either may be empty. The look-up follows RFC 4647 section 3.4: "de-AT"
	// finds a node that offers "de", but "de" does not find one that offers only "de-AT".
	SourceLanguage string `json:"source_language,omitempty"`
	TargetLanguage string `json:"target_language,omitempty"`
	// Labels must all be on the node, with exactly these values.
	Labels map[string]string `json:"labels,omitempty"`
	// LabelRules must all hold for the node's labels.
	LabelRules []LabelRule `json:"label_rules,omitempty"`
	// Features must all be true in the node's Features.
	Features []string `json:"features,omitempty"`
}

// Clone returns a copy that shares nothing with r but strings.
func (r *Requirement) Clone() Requirement {
	out := *r
	out.Services, out.Labels, out.LabelRules = slices.Clone(r.Services), maps.Clone(r.Labels), cloneRules(r.LabelRules)
	out.Features = slices.Clone(r.Features)
	return out
}

func cloneRules(rules []LabelRule) []LabelRule {
	out := slices.Clone(rules)
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
	}
	return out
}

func (r *Requirement) validate(path string) error {
	services, features := path+".services", path+".features"
	return cmp.Or(
		validateOptional(path+".pool", r.Pool),
		validateOptional(path+".preferred_pool", r.PreferredPool),
		validateEach(
			services, len(r.Services), MaxServices,
			func(i int) error { return ValidateService(element(services, i), r.Services[i]) },
		),
		validateLanguage(path+".source_language", r.SourceLanguage),
		validateLanguage(path+".target_language", r.TargetLanguage),
		validateLabels(path+".labels", r.Labels),
		validateLabelRules(path+".label_rules", r.LabelRules),
		validateEach(
			features, len(r.Features), MaxFeatures,
			func(i int) error { return ValidateName(element(features, i), r.Features[i]) },
		),
	)
}

func validateLanguages(field string, tags []string) error {
	return validateEach(field, len(tags), MaxLanguages, func(i int) error { return validateTag(field, tags[i]) })
}

// validateLanguage accepts an empty tag too.
func validateLanguage(field, tag string) error {
	if tag == "" {
		return nil
	}
	return validateTag(field, tag)
}

func validateTag(field, tag string) error {
	if len(tag) > MaxNameLength {
		return Invalid(
			field, "is longer than %d characters, expected a BCP 47 language tag such as de or zh-Hant-TW", MaxNameLength,
		)
	}
	if _, err := language.Parse(tag); err != nil {
		return Invalid(field, "is %q, expected a BCP 47 language tag such as de or zh-Hant-TW", tag)
	}
	return nil
}
