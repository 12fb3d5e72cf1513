package freeslot

import (
	"cmp"
	"maps"
	"slices"
)

// MaxConcurrencyLimit is the largest number of slots that one node can offer.
const MaxConcurrencyLimit = MaxSlots

// Node is a node's profile: what it can do, as its agent states it. It changes rarely, and holds
// nothing that changes with every job.
type Node struct {
	ID string `json:"node_id"`
	// MaxConcurrency is the number of slots. It must be at least 1.
	MaxConcurrency int       `json:"max_concurrency"`
	Services       []Service `json:"installed_services"`
	Languages      Languages `json:"capabilities"`
	// Pools are the pools that the node joins whatever their rules say.
	Pools  []string          `json:"pool_ids,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Features are what the node can do besides its services: matched with Requirement.Features.
	// The node does not have a feature that is false.
	Features map[string]bool `json:"features_supported,omitempty"`
}

// Service is something installed on a node that jobs can name.
type Service struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Endpoint is the service's address. It is shown with the node; jobs do not use it. See
	// [ValidateEndpoint].
	Endpoint string `json:"endpoint,omitempty"`
}

// Languages are the BCP 47 tags that a node handles, by stage. An empty list offers none.
type Languages struct {
	// ASR are the languages that the node understands: matched with Requirement.SourceLanguage.
	ASR []string `json:"asr_languages,omitempty"`
	// TTS are the languages that the node produces: matched with Requirement.TargetLanguage.
	TTS []string `json:"tts_languages,omitempty"`
	// Semantic are the languages of its translation stage. When it is not empty, a job that names a
	// source and a target needs both in it.
	Semantic []string `json:"semantic_languages,omitempty"`
}

// Status tells whether a node takes new jobs.
type Status string

// The values of Status.
const (
	// StatusOnline: the node takes jobs.
	StatusOnline Status = "online"
	// StatusDraining: the node finishes what it runs and takes nothing new.
	StatusDraining Status = "draining"
	// StatusDrained: as StatusDraining, but because an operator asked for it.
	StatusDrained Status = "drained"
)

// Validate checks the profile and returns its first fault. The error is an [*Error] with code
// [CodeInvalidArgument] whose field begins with path.
func (n *Node) Validate(path string) error {
	if err := ValidateName(path+".node_id", n.ID); err != nil {
		return err
	}
	if n.MaxConcurrency < 1 || n.MaxConcurrency > MaxConcurrencyLimit {
		return Invalid(path+".max_concurrency", "is %d, expected 1 to %d", n.MaxConcurrency, MaxConcurrencyLimit)
	}
	services, languages := path+".installed_services", path+".capabilities"
	return cmp.Or(
		validateEach(services, len(n.Services), MaxServices, func(i int) error { return n.Services[i].validate(services) }),
		validateNames(path+".pool_ids", n.Pools, MaxPools),
		validateNames(path+".features_supported", slices.Sorted(maps.Keys(n.Features)), MaxFeatures),
		validateLabels(path+".labels", n.Labels),
		validateLanguages(languages+".asr_languages", n.Languages.ASR),
		validateLanguages(languages+".tts_languages", n.Languages.TTS),
		validateLanguages(languages+".semantic_languages", n.Languages.Semantic),
	)
}

func (s *Service) validate(path string) error {
	if err := cmp.Or(ValidateName(path, s.Name), validateOptional(path+".version", s.Version)); err != nil ||
		s.Endpoint == "" {
		return err
	}
	return ValidateEndpoint(path+".endpoint", s.Endpoint)
}
