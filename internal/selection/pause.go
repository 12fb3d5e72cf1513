package selection

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// MaxPaused is the most entries that each list of a Paused can have.
const MaxPaused = 1000

// Paused lists the pools, services and classes that start no new job. Running jobs go on, and new
// jobs wait. The zero value pauses nothing.
//
//   - A pool: a node takes jobs of a class through its pools that are not paused, and none if all
//     of them are paused. For a class that is restricted to pools, these are the pools that it may
//     use; for any other class, all pools that the node is in. A node in no pool is not concerned.
//     A preference for a paused pool has no effect.
//   - A service: its jobs, and the jobs that require it besides their own service.
//   - A class: the jobs with exactly this requirement, by its [class.ID].
type Paused struct {
	Pools    []string `json:"pools,omitempty" koanf:"pools"`
	Services []string `json:"services,omitempty" koanf:"services"`
	Classes  []string `json:"classes,omitempty" koanf:"classes"`
}

// Empty reports whether nothing is paused. Nil is empty.
func (p *Paused) Empty() bool {
	return p == nil || len(p.Pools)+len(p.Services)+len(p.Classes) == 0
}

// Normal returns a copy in which each list is sorted and has no entry twice. It shares nothing with
// p. For nil it returns an empty one.
func (p *Paused) Normal() *Paused {
	if p == nil {
		return &Paused{}
	}
	tidy := func(list []string) []string {
		if len(list) == 0 {
			return nil
		}
		list = slices.Clone(list)
		slices.Sort(list)
		return slices.Compact(list)
	}
	return &Paused{Pools: tidy(p.Pools), Services: tidy(p.Services), Classes: tidy(p.Classes)}
}

// Text returns the canonical form: equal values have equal texts, and an empty one is "{}".
func (p *Paused) Text() string {
	text, err := json.Marshal(p.Normal())
	if err != nil {
		panic("selection: names are no JSON: " + err.Error())
	}
	return string(text)
}

// Equal reports whether the same is paused.
func (p *Paused) Equal(other *Paused) bool { return p.Text() == other.Text() }

func (p *Paused) validate(path string, found *freeslot.FieldErrors) {
	if p == nil {
		return
	}
	check := func(field string, list []string, valid func(field, entry string) error) {
		field = path + "." + field
		if len(list) > MaxPaused {
			found.Addf(field, "has %d entries, expected at most %d", len(list), MaxPaused)
			return
		}
		for i, entry := range list {
			found.Add(valid(element(field, i), entry))
		}
	}
	check("pools", p.Pools, freeslot.ValidateName)
	check("services", p.Services, freeslot.ValidateName)
	check("classes", p.Classes, freeslot.ValidateClassID)
}

// Pauses reports whether anything is paused. Nil means the zero Config.
func (c *Config) Pauses() bool { return c != nil && !c.Paused.Empty() }

// pauses is a prepared Paused; the zero value pauses nothing.
type pauses struct {
	any                      bool
	pools, services, classes map[string]bool
}

func newPauses(p *Paused) pauses {
	if p.Empty() {
		return pauses{}
	}
	names := func(list []string) map[string]bool {
		m := make(map[string]bool, len(list))
		for _, name := range list {
			m[name] = true
		}
		return m
	}
	return pauses{any: true, pools: names(p.Pools), services: names(p.Services), classes: names(p.Classes)}
}

// halted names the pause of a class as a whole; "" if there is none.
func (c *compiled) halted(services []string, service string, r *freeslot.Requirement) string {
	for _, name := range services {
		if c.paused.services[name] {
			return "service " + name
		}
	}
	if len(c.paused.classes) > 0 {
		if id := class.ID(service, r); c.paused.classes[id] {
			return "class " + id
		}
	}
	return ""
}

// running returns the tier in which p takes jobs. tier is the one that p fits without pauses. why
// names the pause of p, "" if there is none.
func (f *filter) running(p *Profile, tier int) (now int, why string) {
	switch {
	case !f.cfg.paused.any:
		return tier, ""
	case f.halted != "":
		return tier, f.halted
	case len(f.cfg.paused.pools) == 0:
		return tier, ""
	}
	if len(f.pools) == 0 {
		if why = f.cfg.allPaused(f.cfg.members(p)); why != "" {
			return tier, why
		}
	} else {
		var in []string
		now = slices.IndexFunc(f.pools, func(r *rule) bool {
			if !r.admits(p) {
				return false
			}
			in = append(in, r.id)
			return !f.cfg.paused.pools[r.id]
		})
		if now < 0 {
			return tier, f.cfg.allPaused(in)
		}
	}
	if f.preferred == nil {
		return now, ""
	}
	if !f.cfg.paused.pools[f.preferred.id] && f.preferred.admits(p) {
		return 0, ""
	}
	return now + 1, ""
}

// allPaused returns the first of the pools if there are some and all of them are paused.
func (c *compiled) allPaused(pools []string) (why string) {
	for _, id := range pools {
		if !c.paused.pools[id] {
			return ""
		}
		why = cmp.Or(why, "pool "+id)
	}
	return why
}

func pausedDetail(why string) string { return fmt.Sprintf("%s is paused", why) }
