package selection

import (
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
)

// Default and bounds of Pool.MaxWaitForNode.
const (
	DefaultMaxWaitForNode  = 10 * time.Minute
	shortestMaxWaitForNode = time.Second
	longestMaxWaitForNode  = 24 * time.Hour
)

// Expects says what a node of the pool will offer, as its agent will state it.
type Expects struct {
	// Services that the node will have, each optionally with its version, such as `asr@1.4.2`. A job
	// that asks for a range of versions needs the version here.
	Services []string `json:"services" koanf:"services"`
	// Labels that the node will have.
	Labels map[string]string `json:"labels,omitempty" koanf:"labels"`
	// Languages that the node will handle (BCP 47), by stage.
	Languages ExpectedLanguages `json:"languages,omitzero" koanf:"languages"`
	// Slots of the node, its `max_concurrency`. 0 means 1. A job that takes more slots does not wait.
	Slots int `json:"slots,omitempty" koanf:"slots"`
}

// ExpectedLanguages are languages by stage, as in an agent's configuration.
type ExpectedLanguages struct {
	// Languages that the node will understand.
	ASR []string `json:"asr,omitempty" koanf:"asr"`
	// Languages that the node will produce.
	TTS []string `json:"tts,omitempty" koanf:"tts"`
	// Languages of its translation stage.
	Semantic []string `json:"semantic,omitempty" koanf:"semantic"`
}

// Expected is a pool whose nodes will fit a job, and how long the job may wait for the first one.
type Expected struct {
	Pool string
	Wait time.Duration
}

// expectation is a pool's Expects, prepared for matching.
type expectation struct {
	pool    string
	profile *Profile
	slots   int
	wait    time.Duration
}

// Expecting returns the pools whose nodes will fit "service with requirement r", the ones first
// that such a job tries first. slots is what the job takes. r must be valid. It is empty for a job
// that fits no node that is expected, and without any Expects in enabled pools. The nodes that run
// do not matter. Nil means the zero Config. Cost: one match for each pool with Expects.
func (c *Config) Expecting(service string, r *freeslot.Requirement, slots int) []Expected {
	prepared := compile(c)
	if len(prepared.expected) == 0 {
		return nil
	}
	f := newFilter(prepared, service, r)
	byTier := make([][]Expected, f.tierCount())
	for i := range prepared.expected {
		e := &prepared.expected[i]
		if tier, why := f.match(e.profile); why == "" && slots <= e.slots {
			byTier[tier] = append(byTier[tier], Expected{Pool: e.pool, Wait: e.wait})
		}
	}
	return slices.Concat(byTier...)
}

// newExpectation prepares the Expects of a valid pool. The node will be a member of the pool,
// whatever else its rule asks for.
func newExpectation(p *Pool) expectation {
	e, wait := p.Expects, DefaultMaxWaitForNode
	if stated, err := time.ParseDuration(p.MaxWaitForNode); err == nil {
		wait = stated
	}
	node := &freeslot.Node{
		MaxConcurrency: max(e.Slots, 1), Pools: []string{p.ID}, Labels: e.Labels,
		Languages: freeslot.Languages{ASR: e.Languages.ASR, TTS: e.Languages.TTS, Semantic: e.Languages.Semantic},
	}
	for _, entry := range e.Services {
		name, version := freeslot.SplitService(entry)
		node.Services = append(node.Services, freeslot.Service{Name: name, Version: version})
	}
	return expectation{pool: p.ID, profile: Compile(node), slots: node.MaxConcurrency, wait: wait}
}

func (p *Pool) validateExpects(path string, found *freeslot.FieldErrors) {
	if text := p.MaxWaitForNode; text != "" {
		wait, err := time.ParseDuration(text)
		switch {
		case err != nil || wait < shortestMaxWaitForNode || wait > longestMaxWaitForNode:
			found.Addf(path+".max_wait_for_node", "is %q, expected a duration of 1s to 24h such as 10m", text)
		case p.Expects == nil:
			found.Addf(path+".max_wait_for_node", "is set without expects, expected both")
		}
	}
	if p.Expects != nil {
		p.Expects.validate(path+".expects", found)
	}
}

func (e *Expects) validate(path string, found *freeslot.FieldErrors) {
	if len(e.Services) == 0 || len(e.Services) > freeslot.MaxServices {
		found.Addf(path+".services", "has %d entries, expected 1 to %d", len(e.Services), freeslot.MaxServices)
	} else {
		for i, entry := range e.Services {
			field := element(path+".services", i)
			name, version, versioned := strings.Cut(entry, "@")
			found.Add(freeslot.ValidateName(field, name))
			if versioned {
				found.Add(freeslot.ValidateName(field+" version", version))
			}
		}
	}
	validateLabels(path+".labels", e.Labels, found)
	validateLanguages(path+".languages.asr", e.Languages.ASR, found)
	validateLanguages(path+".languages.tts", e.Languages.TTS, found)
	validateLanguages(path+".languages.semantic", e.Languages.Semantic, found)
	if e.Slots < 0 || e.Slots > freeslot.MaxConcurrencyLimit {
		found.Addf(path+".slots", "is %d, expected 0 to %d (0 means 1)", e.Slots, freeslot.MaxConcurrencyLimit)
	}
}
