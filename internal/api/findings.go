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
	findingsInput struct {
		Doctor bool `query:"doctor" doc:"Whether to check the servers of Redis in detail, too: settings, time of a call, clocks, slow calls, deleted keys, persistence, certificates. The user of the replica may lack rights for a part of it, which is then in unchecked."`
	}
	findingsOutput struct{ Body FindingReport }
)

func (s *Server) registerFindings(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-findings", Method: http.MethodGet, Path: "/v1/findings", Tags: []string{"findings"},
		Summary: "List what is wrong now",
		Description: "What the replica that answers finds wrong with itself, the fleet, the queues, Redis and what it " +
			"keeps there, as of at most two seconds ago. An empty list and no unknown part: all is well.",
	}, handleBounded(s, "findings", func(_ context.Context, in *findingsInput) (*findingsOutput, error) {
		report := s.deps.Findings.Look()
		if in.Doctor && s.deps.Doctor != nil {
			report = report.And(s.deps.Doctor.Look())
		}
		return &findingsOutput{Body: FindingReport(report)}, nil
	}))
}
