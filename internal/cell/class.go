package cell

import (
	"fmt"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// Class names a group of jobs that fit the same nodes.
type Class struct {
	// ID is a hash of the canonical form, 16 hexadecimal digits.
	ID string
	// Definition is a ClassDefinition in JSON.
	Definition string
}

// ClassDefinition states which nodes fit.
type ClassDefinition struct {
	Service     string               `json:"service"`
	Requirement freeslot.Requirement `json:"requirement,omitzero"`
}

// ClassOf returns the class of a job whose submitter did not compute it.
func ClassOf(job *freeslot.Job) Class {
	return Class{
		ID:         class.ID(job.Service, &job.Requirement),
		Definition: mustJSON(ClassDefinition{Service: job.Service, Requirement: job.Requirement}),
	}
}

// readClasses reads classes, given as id and definition in turn.
func readClasses(text []string) ([]Class, error) {
	if len(text)%2 != 0 {
		return nil, fmt.Errorf("%d values, expected pairs", len(text))
	}
	var classes []Class
	for i := 0; i < len(text); i += 2 {
		classes = append(classes, Class{ID: text[i], Definition: text[i+1]})
	}
	return classes, nil
}
