package selection

import (
	"slices"
	"time"

	"github.com/freeslot/freeslot"
)

// Pool is a named group of nodes: the nodes that name it in their profile, the nodes that it names,
// and the nodes that satisfy its rule. The rule is everything from SourceLanguages to Labels. A
// pool without a rule has only explicit members.
type Pool struct {
	// The name that jobs ask for.
	ID string `json:"id" koanf:"id"`
	// Ids of nodes that are in the pool even if its rule does not admit them.
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
	// What the nodes of this pool will offer. Jobs that fit wait for a node that does not run yet.
	// Without it they are refused with `no_matching_node`.
	Expects *Expects `json:"expects,omitempty" koanf:"expects"`
	// How long a job waits for a node that fits because of `expects`: a duration such as `90s` or
	// `1h`, from 1s to 24h. Absent means 10m.
	MaxWaitForNode string `json:"max_wait_for_node,omitempty" koanf:"max_wait_for_node"`
	// The longest that jobs should wait for a slot, such as `30s`, from 1s to 24h. `GET /v1/demand`
	// then proposes how many nodes the pool should have (docs/autoscaling.md). Absent means no
	// proposal.
	TargetWait string `json:"target_wait,omitempty" koanf:"target_wait"`
}

// Bounds of Pool.TargetWait.
const (
	shortestTargetWait = time.Second
	longestTargetWait  = 24 * time.Hour
)

// Target returns the TargetWait of a valid pool; 0 if there is none.
func (p *Pool) Target() time.Duration {
	target, _ := time.ParseDuration(p.TargetWait)
	return target
}

func (p *Pool) validateTarget(path string, found *freeslot.FieldErrors) {
	target, err := time.ParseDuration(p.TargetWait)
	if p.TargetWait != "" && (err != nil || target < shortestTargetWait || target > longestTargetWait) {
		found.Addf(path+".target_wait", "is %q, expected a duration of 1s to 24h such as 30s", p.TargetWait)
	}
}

// Pools is the configuration of all pools. For jobs that state a language, their order is the order
// of preference. Nil means that no pool is configured.
type Pools []Pool

// rule is a Pool prepared for finding its members and the languages that it covers.
type rule struct {
	id             string
	index          int // index among the configured pools
	named          set // ids of nodes
	source, target languages
	services       serviceList
	labels         map[string]string
	explicit       bool // true if it has only explicit members
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
		r.services.missing(p) == "" && r.services.outOfRange(p) == nil &&
		(len(r.source.tags) == 0 || p.source.findAny(r.source.tags)) &&
		(len(r.target.tags) == 0 || p.target.findAny(r.target.tags)) &&
		p.hasLabels(r.labels)
}

// serviceList is a prepared list of services with optional version ranges. It is immutable.
type serviceList struct {
	names  []string // of all services
	ranges []rangedService
}

type rangedService struct {
	name     string
	text     string // the range as stated
	versions freeslot.VersionRange
}

// newServiceList prepares entries, which must be valid: an invalid range contains no version.
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

// missing returns the first service that is not installed; "" if all are.
func (l *serviceList) missing(p *Profile) string {
	for _, name := range l.names {
		if !p.services.has(name) {
			return name
		}
	}
	return ""
}

// outOfRange returns the first service without an installed version in range; nil if there is none.
func (l *serviceList) outOfRange(p *Profile) *rangedService {
	for i := range l.ranges {
		if !l.ranges[i].admits(p) {
			return &l.ranges[i]
		}
	}
	return nil
}

// admits reports whether a service of this name is installed in range. A node may list a service
// more than once; one entry in range is enough.
func (s *rangedService) admits(p *Profile) bool {
	return slices.ContainsFunc(p.node.Services, func(installed freeslot.Service) bool {
		return installed.Name == s.name && s.versions.Contains(installed.Version)
	})
}
