package freeslot

// MaxConcurrencyLimit is the most slots that one node can offer.
const MaxConcurrencyLimit = MaxSlots

// Node is a node's profile: what it can do, as its agent states it. It changes
// rarely; what changes with every job is not part of it.
type Node struct {
	ID string `json:"node_id"`
	// MaxConcurrency is the number of slots. It must be at least 1.
	MaxConcurrency int       `json:"max_concurrency"`
	Services       []Service `json:"installed_services"`
	Languages      Languages `json:"capabilities"`
	// Pools are the pools that the node joins whatever their rules say.
	Pools    []string          `json:"pool_ids,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Features map[string]bool   `json:"features_supported,omitempty"`
}

// Service is something installed on a node that jobs can name.
type Service struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Endpoint is where the service can be reached, for those who look at the node; jobs
	// do not go by it. See [ValidateEndpoint].
	Endpoint string `json:"endpoint,omitempty"`
}

// Languages are the BCP 47 tags that a node handles, by stage. An empty list
// offers none.
type Languages struct {
	// ASR are the languages that the node understands: matched with Requirement.SourceLanguage.
	ASR []string `json:"asr_languages,omitempty"`
	// TTS are the languages that the node produces: matched with Requirement.TargetLanguage.
	TTS []string `json:"tts_languages,omitempty"`
	// Semantic are the languages of its translation stage. When it is not empty,
	// a job that names both a source and a target needs both in it.
	Semantic []string `json:"semantic_languages,omitempty"`
}

// Status is whether a node takes new jobs.
type Status string

// The values of Status.
const (
	// StatusOnline: takes jobs.
	StatusOnline Status = "online"
	// StatusDraining: finishes what it runs and takes nothing new.
	StatusDraining Status = "draining"
	// StatusDrained: likewise, on an operator's word.
	StatusDrained Status = "drained"
)

// Validate checks the profile. The error is an [*Error] with code
// [CodeInvalidArgument] whose field begins with path.
func (n *Node) Validate(path string) error {
	if err := ValidateName(path+".node_id", n.ID); err != nil {
		return err
	}
	if n.MaxConcurrency < 1 || n.MaxConcurrency > MaxConcurrencyLimit {
		return Invalid(path+".max_concurrency", "is %d, expected 1 to %d", n.MaxConcurrency, MaxConcurrencyLimit)
	}
	if len(n.Services) > MaxServices {
		return Invalid(path+".installed_services", "has %d entries, expected at most %d", len(n.Services), MaxServices)
	}
	for _, s := range n.Services {
		if err := ValidateName(path+".installed_services", s.Name); err != nil {
			return err
		}
		if s.Version != "" {
			if err := ValidateName(path+".installed_services.version", s.Version); err != nil {
				return err
			}
		}
		if s.Endpoint != "" {
			if err := ValidateEndpoint(path+".installed_services.endpoint", s.Endpoint); err != nil {
				return err
			}
		}
	}
	if len(n.Pools) > MaxPools {
		return Invalid(path+".pool_ids", "has %d entries, expected at most %d", len(n.Pools), MaxPools)
	}
	if len(n.Features) > MaxLabels {
		return Invalid(path+".features_supported", "has %d entries, expected at most %d", len(n.Features), MaxLabels)
	}
	for name := range n.Features {
		if err := ValidateName(path+".features_supported", name); err != nil {
			return err
		}
	}
	for _, p := range n.Pools {
		if err := ValidateName(path+".pool_ids", p); err != nil {
			return err
		}
	}
	if len(n.Labels) > MaxLabels {
		return Invalid(path+".labels", "has %d entries, expected at most %d", len(n.Labels), MaxLabels)
	}
	if err := validateLabels(path+".labels", n.Labels); err != nil {
		return err
	}
	return n.Languages.validate(path + ".capabilities")
}

func (l *Languages) validate(path string) error {
	for _, stage := range []struct {
		field string
		tags  []string
	}{{"asr_languages", l.ASR}, {"tts_languages", l.TTS}, {"semantic_languages", l.Semantic}} {
		if len(stage.tags) > MaxLanguages {
			return Invalid(path+"."+stage.field, "has %d entries, expected at most %d", len(stage.tags), MaxLanguages)
		}
		for _, tag := range stage.tags {
			if err := validateLanguage(path+"."+stage.field, tag); err != nil {
				return err
			}
		}
	}
	return nil
}
