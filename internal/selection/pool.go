package selection

import (
	"slices"

	"github.com/freeslot/freeslot"
)

// Pool is a named group of nodes: those that name it in their profile, those that it
// names, and those that satisfy its rule. The rule is everything but ID and Members;
// a pool without any has explicit members only.
type Pool struct {
	// The name that jobs ask for.
	ID string `json:"id" koanf:"id"`
	// Ids of nodes that are in the pool whatever its rule says.
	Members []string `json:"members,omitempty" koanf:"members"`
	// The node must understand one of these languages (BCP 47). Jobs in these languages are
	// restricted to the pools that cover them.
	SourceLanguages []string `json:"source_languages,omitempty" koanf:"source_languages"`
	// The node must produce one of these languages. Jobs are restricted as by `source_languages`.
	TargetLanguages []string `json:"target_languages,omitempty" koanf:"target_languages"`
	// The node must have all of these services, each optionally in a range of versions such as
	// `asr@>=1.2 <2`.
	Services []string `json:"services,omitempty" koanf:"services"`
	// The node must have all of these labels with these very values.
	Labels map[string]string `json:"labels,omitempty" koanf:"labels"`
}

// Pools is the configuration of all pools; for jobs that state a language the
// order is the order of preference. Nil means that none is configured.
type Pools []Pool

// rule is a Pool prepared for telling its members and what it covers.
type rule struct {
	id             string
	index          int // among the configured pools
	named          set // node ids
	source, target languages
	services       serviceList
	labels         map[string]string
	explicit       bool // explicit members only
}

func newRule(p *Pool) *rule {
	return &rule{
		id:       p.ID,
		index:    -1,
		named:    newSet(slices.Clone(p.Members)),
		source:   newLanguages(p.SourceLanguages),
		target:   newLanguages(p.TargetLanguages),
		services: newServiceList(p.Services),
		labels:   p.Labels,
		explicit: len(p.SourceLanguages) == 0 && len(p.TargetLanguages) == 0 &&
			len(p.Services) == 0 && len(p.Labels) == 0,
	}
}

func (r *rule) admits(p *Profile) bool {
	if p.pools.has(r.id) || r.named.has(p.node.ID) {
		return true
	}
	return !r.explicit &&
		r.services.installed(p) == "" && r.services.inRange(p) == "" &&
		(len(r.source.tags) == 0 || p.source.findAny(r.source.tags)) &&
		(len(r.target.tags) == 0 || p.target.findAny(r.target.tags)) &&
		p.hasLabels(r.labels)
}

// serviceList is a list of services with optional version ranges, prepared. It is
// immutable.
type serviceList struct {
	names  []string // all of them
	ranges []rangedService
}

type rangedService struct {
	name     string
	text     string // the range as it was stated
	versions freeslot.VersionRange
}

// newServiceList prepares entries, which must be valid: a range that is not contains
// no version.
func newServiceList(entries []string) serviceList {
	l := serviceList{names: make([]string, len(entries))}
	for i, entry := range entries {
		name, versions := freeslot.SplitService(entry)
		l.names[i] = name
		if versions != "" {
			parsed, _ := freeslot.ParseVersionRange(versions)
			l.ranges = append(l.ranges, rangedService{name: name, text: versions, versions: parsed})
		}
	}
	return l
}

// installed returns the first service that is not installed, "" if all are.
func (l *serviceList) installed(p *Profile) string {
	for _, name := range l.names {
		if !p.services.has(name) {
			return name
		}
	}
	return ""
}

// inRange returns the first service of which no installed version is in range, ""
// if there is none.
func (l *serviceList) inRange(p *Profile) string {
	for i := range l.ranges {
		if !l.ranges[i].admits(p) {
			return l.ranges[i].name
		}
	}
	return ""
}

// admits reports whether a service of this name is installed in range. A node may
// list a service more than once; one that fits is enough.
func (s *rangedService) admits(p *Profile) bool {
	for _, installed := range p.node.Services {
		if installed.Name == s.name && s.versions.Contains(installed.Version) {
			return true
		}
	}
	return false
}
