// Package feature is what a feature hands to the replica that it is a part of.
package feature

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
)

// Step is a part of a replica as it starts and stops. A nil Start or Stop is left out.
type Step struct {
	// Name says which part it is, for readers of the code.
	Name string
	// Start returns once the part works. Its context bounds the start only.
	Start func(ctx context.Context) error
	// Stop waits until the part does nothing any more, or its context ends.
	Stop func(ctx context.Context) error
}

// Feature is a part of a replica that brings its own routes, conditions of readiness and lifecycle. Its
// package makes it; metrics go to the registerer that it is made with.
type Feature struct {
	Step
	Routes []api.Routes
	Checks []api.Check
	// SetReplicas gets the names of all replicas, this one among them, whenever they change; nil means
	// that the feature need not know. It must not block, nor change what it gets.
	SetReplicas func(names []string)
}
