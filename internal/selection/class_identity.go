package selection

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// Identity says which class a [Class] is, however often its lists are built again. It
// is immutable and safe for concurrent use.
type Identity struct {
	service     string
	requirement freeslot.Requirement

	// The names are made when they are first asked for: most lists never need them, and
	// they cost more than finding the class.
	once           sync.Once
	id, definition string
}

// NewIdentity is that of "service with requirement r", which must be valid. Nothing of
// r is kept.
func NewIdentity(service string, r *freeslot.Requirement) *Identity {
	i := &Identity{service: service, requirement: r.Clone()}
	// Empty lists and absent ones are defined in the same words.
	if len(i.requirement.Services) == 0 {
		i.requirement.Services = nil
	}
	if len(i.requirement.Labels) == 0 {
		i.requirement.Labels = nil
	}
	if len(i.requirement.LabelRules) == 0 {
		i.requirement.LabelRules = nil
	}
	return i
}

// ID is [class.ID].
func (i *Identity) ID() string {
	i.once.Do(i.name)
	return i.id
}

// Definition is a JSON object with the "service" and the "requirement" by which the
// class was first asked for: other words may stand for the same class. NewClass with
// what it says gives the same candidates.
func (i *Identity) Definition() string {
	i.once.Do(i.name)
	return i.definition
}

// definition is the form of Identity.Definition.
type definition struct {
	Service     string               `json:"service"`
	Requirement freeslot.Requirement `json:"requirement,omitzero"`
}

func (i *Identity) name() {
	text, err := json.Marshal(definition{Service: i.service, Requirement: i.requirement})
	if err != nil {
		panic(fmt.Sprintf("selection: a valid requirement is no JSON: %v", err))
	}
	i.id, i.definition = class.ID(i.service, &i.requirement), string(text)
}

// NewClass is [NewClass] for a replica with this share, which may be nil.
func (i *Identity) NewClass(share *Share, nodes []*Node, cfg *Config) *Class {
	return newClass(share, nodes, cfg, i)
}
