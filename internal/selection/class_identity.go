package selection

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// Identity holds what a [Class] keeps when its lists are built again: its service, requirement and
// id. It is immutable and safe for concurrent use.
type Identity struct {
	service     string
	requirement freeslot.Requirement

	// The first call that needs the id and the definition makes them: most lists never need them,
	// and they cost more than finding the class.
	once           sync.Once
	id, definition string
}

// NewIdentity returns the identity of "service with requirement r". r must be valid. NewIdentity
// copies r.
func NewIdentity(service string, r *freeslot.Requirement) *Identity {
	i := &Identity{service: service, requirement: r.Clone()}
	// The definition must be the same for empty lists and absent ones.
	if len(i.requirement.Services) == 0 {
		i.requirement.Services = nil
	}
	if len(i.requirement.Labels) == 0 {
		i.requirement.Labels = nil
	}
	if len(i.requirement.LabelRules) == 0 {
		i.requirement.LabelRules = nil
	}
	if len(i.requirement.Features) == 0 {
		i.requirement.Features = nil
	}
	return i
}

// Is reports whether the identity was made from these words: [class.Same], and the same service. It
// allocates nothing.
func (i *Identity) Is(service string, r *freeslot.Requirement) bool {
	return i.service == service && class.Same(&i.requirement, r)
}

// ID returns [class.ID].
func (i *Identity) ID() string {
	i.once.Do(i.name)
	return i.id
}

// Definition returns a JSON object with the "service" and the "requirement" that the class was made
// from. Other spellings can mean the same class. NewClass with these two gives the same candidates.
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
