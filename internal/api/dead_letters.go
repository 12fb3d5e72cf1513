package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

type deadLettersInput struct {
	Group   []string `query:"group" enum:"service,code,node,tenant" default:"service,code" maxItems:"4" doc:"By what the jobs are grouped."`
	Tenant  string   `query:"tenant" maxLength:"64" doc:"Only jobs of this tenant. Clients may only name their own; operators see all without it."`
	Service string   `query:"service" maxLength:"64" doc:"Only jobs of this service."`
	Node    string   `query:"node" maxLength:"64" doc:"Only jobs that ran last on this node."`
	Code    string   `query:"code" maxLength:"128" doc:"Only jobs whose error has this code."`
	FromMS  int64    `query:"ended_from_ms" minimum:"0" maximum:"99999999999999" doc:"Only jobs that died at this time or later, in milliseconds since 1970 by Redis' clock."`
	ToMS    int64    `query:"ended_to_ms" minimum:"0" maximum:"99999999999999" doc:"Only jobs that died before this time."`
}

// DeadLetters says what died. Its fields are documented in their tags.
type DeadLetters struct {
	Groups   []DeadGroup `json:"groups" doc:"The largest first, at most 200."`
	LookedAt int         `json:"looked_at" doc:"How many dead jobs were looked at: the newest, at most 5000."`
	Total    int         `json:"total,omitempty" doc:"How many jobs died in that time in all, whatever the other filters say; only for operators who ask for all tenants."`
	SinceMS  int64       `json:"since_ms" doc:"The groups have every job that fits and died at this time or later, by Redis' clock."`
	// Unreachable is documented in its tag.
	Unreachable []int `json:"unreachable,omitempty" doc:"The cells that did not answer, whose jobs are not counted."`
}

// DeadGroup counts dead jobs that have the same properties.
type DeadGroup struct {
	Service string `json:"service,omitempty" doc:"Their service, if they are grouped by it; so are the next three."`
	Code    string `json:"code,omitempty" doc:"The code of their error."`
	Node    string `json:"node,omitempty" doc:"Where they ran last."`
	Tenant  string `json:"tenant,omitempty"`
	Jobs    int    `json:"jobs" doc:"How many there are among those that were looked at."`
	LastMS  int64  `json:"last_ms" doc:"When the last of them died."`
	LastJob string `json:"last_job_id" doc:"The id of that job."`
}

type deadLettersOutput struct{ Body DeadLetters }

func (s *Server) registerDeadLetters(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "count-dead-letters", Method: http.MethodGet, Path: "/v1/dead-letters", Tags: []string{"jobs"},
		Summary: "Count dead jobs",
		Description: "By what they have in common, the newest dead jobs that are kept. GET /v1/jobs?state=dead with the " +
			"properties of a group lists its jobs.",
	}, handle(s, "dead_letters", s.deadLetters))
}

func (s *Server) deadLetters(ctx context.Context, in *deadLettersInput) (*deadLettersOutput, error) {
	list := listInput{
		State: string(freeslot.StateDead), Tenant: in.Tenant, Service: in.Service, Node: in.Node, Code: in.Code,
		FromMS: in.FromMS,
		ToMS:   in.ToMS,
	}
	filter, err := list.filter()
	if err != nil {
		return nil, err
	}
	if err := ownTenant(Caller(ctx), &filter); err != nil {
		return nil, err
	}
	by := make([]cell.DeadKey, len(in.Group))
	for i, name := range in.Group {
		by[i] = cell.DeadKey(name)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	found, err := s.deps.Jobs.DeadLetters(ctx, filter, by)
	if err != nil {
		return nil, err
	}
	out := &deadLettersOutput{Body: DeadLetters{
		Groups: make([]DeadGroup, len(found.Groups)), LookedAt: found.LookedAt, SinceMS: found.SinceMS,
		Unreachable: found.Unreachable,
	}}
	if filter.Tenant == "" {
		out.Body.Total = found.Total
	}
	for i, g := range found.Groups {
		out.Body.Groups[i] = DeadGroup(g)
	}
	return out, nil
}
