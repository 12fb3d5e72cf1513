package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/finding"
)

// Findings tells what is wrong now; *finding.Board implements it.
type Findings interface {
	Look() finding.Report
}

// FindingReport is a report, under a name of its own in the OpenAPI document.
type FindingReport finding.Report

type (
	findingsInput  struct{}
	findingsOutput struct{ Body FindingReport }
)

func (s *Server) registerFindings(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-findings", Method: http.MethodGet, Path: "/v1/findings", Tags: []string{"findings"},
		Summary: "List what is wrong now",
		Description: "What the replica that answers finds wrong with itself, the fleet, the queues, Redis and what it " +
			"keeps there, as of at most two seconds ago. An empty list and no unknown part: all is well.",
	}, handleBounded(s, "findings", func(context.Context, *findingsInput) (*findingsOutput, error) {
		return &findingsOutput{Body: FindingReport(s.deps.Findings.Look())}, nil
	}))
}
