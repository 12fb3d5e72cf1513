package feature

import (
	"cmp"
	"slices"

	"go.uber.org/fx"
)

// Hook takes the steps of a replica's parts, in the order in which they start. The replica provides
// it.
type Hook func(Step)

// Option returns the fx module. It makes the part, adds its step to the hooks, and adds it to
// Parts. place orders Parts.
func (m Module) Option(place int) fx.Option {
	newPart := func(env *Env) Part {
		part := m.New(env)
		part.place = place
		return part
	}
	return fx.Module(m.Name,
		// Each module has a Part of its own.
		fx.Provide(newPart, fx.Private),
		fx.Provide(fx.Annotate(func(p Part) Part { return p }, fx.ResultTags(`group:"parts"`))),
		fx.Invoke(func(hook Hook, p Part) { hook(p.Step) }),
	)
}

// Parts holds the parts of all features. All returns them.
type Parts struct {
	fx.In
	Group []Part `group:"parts"`
}

// All returns the parts in the order of their modules. fx gives them in any order.
func (p Parts) All() []Part {
	all := slices.Clone(p.Group)
	slices.SortFunc(all, func(a, b Part) int { return cmp.Compare(a.place, b.place) })
	return all
}
