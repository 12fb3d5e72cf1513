package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/statistics"
)

// Window is the time of statistics. It is exported because huma ignores unexported parts of
// requests.
type Window struct {
	SinceMS int64  `query:"since_ms" minimum:"60000" maximum:"7776000000" default:"86400000" doc:"How far back, in milliseconds: up to 90 days."`
	Step    string `query:"step" enum:"minute,hour" doc:"The time of a point. Absent means minutes up to 6 hours back, else hours. There are minutes for a day."`
}

// times returns how far back statistics go, and the time of a point.
func (w Window) times() (since, step time.Duration) {
	since, step = time.Duration(w.SinceMS)*time.Millisecond, time.Hour
	if w.Step == "minute" || w.Step == "" && since <= minutesUpTo {
		step = time.Minute
	}
	return since, step
}

type statisticsInput struct {
	OfList
	Window
	Application string `query:"application" maxLength:"130" doc:"Only this application."`
}

// ListStatistics is what clients have counted of their lookups of a list.
type ListStatistics struct {
	AtMS   int64 `json:"at_ms" doc:"Redis' time. The last minute is not complete: clients report each 5 s, and reports are added up each 30 s."`
	StepMS int64 `json:"step_ms"`
	ListCounts
	Applications map[string]ListCounts `json:"applications" doc:"By the tenant and the name of the token, with / between; (redis) for processes that report to Redis; other for all beyond 64, and where history has lost that detail."`
	Points       []ListPoint           `json:"points" doc:"The minutes or hours in which something was counted, the oldest first."`
}

// ListCounts counts lookups.
type ListCounts struct {
	Lookups        uint64            `json:"lookups"`
	Hits           uint64            `json:"hits" doc:"Answers yes."`
	Misses         uint64            `json:"misses" doc:"Answers no."`
	Unknown        uint64            `json:"unknown"`
	HitRate        float64           `json:"hit_rate" doc:"Hits of the answers that are not unknown; 0 without any."`
	Sources        map[string]uint64 `json:"sources,omitempty" doc:"Answers by source and answer, such as filter_no. Old history lacks that detail."`
	UnknownBy      map[string]uint64 `json:"unknown_by,omitempty" doc:"Unknown answers by reason."`
	FalsePositives uint64            `json:"false_positives" doc:"Lookups that the filter let through, of ids that the version does not have."`
	RemoteCalls    uint64            `json:"remote_calls" doc:"Calls for ids that memory could not decide."`
	RemoteMeanUS   uint64            `json:"remote_mean_us" doc:"Their mean time in microseconds."`
	RemoteBy       map[string]uint64 `json:"remote_by,omitempty" doc:"Calls by time."`
}

// ListPoint counts the lookups of a minute or an hour.
type ListPoint struct {
	AtMS    int64  `json:"at_ms" doc:"Its beginning."`
	Lookups uint64 `json:"lookups"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	Unknown uint64 `json:"unknown"`
}

// minutesUpTo is the longest time for which a summary has minutes unless hours were asked for.
const minutesUpTo = 6 * time.Hour

// statisticsOf returns the routes of the statistics; all lacks its router.
func statisticsOf(all *routes, k *statistics.Keeper) api.Routes {
	return func(router *api.Router) {
		r := &routes{Router: router, control: all.control, manager: all.manager}
		huma.Register(r, huma.Operation{
			OperationID: "list-statistics", Method: http.MethodGet, Path: listPath + "/statistics", Tags: []string{"lists"},
			Summary:     "Show how often a list was asked, and what it answered",
			Description: "Clients of package namelist count, and so do others that report counts.",
			Middlewares: []func(huma.Context, func(huma.Context)){r.guard},
		}, func(ctx context.Context, in *statisticsInput) (*output[ListStatistics], error) {
			return handle(ctx, r, "show statistics of the list", in, func(
				ctx context.Context, in *statisticsInput,
			) (ListStatistics, error) {
				since, step := in.times()
				sum, at, err := k.Summary(ctx, in.List, since, step, in.Application)
				return statisticsView(&sum, at), err
			})
		})
		huma.Register(r, huma.Operation{
			OperationID: "chain-statistics", Method: http.MethodGet, Path: chainPath + "/statistics", Tags: []string{"chains"},
			Summary:     "Show what a chain has decided, by rule",
			Description: "Clients of package namelist count, and so do replicas.",
		}, func(ctx context.Context, in *chainStatisticsInput) (*output[ChainStatistics], error) {
			return handle(ctx, r, "show statistics of the chain", in, func(
				ctx context.Context, in *chainStatisticsInput,
			) (ChainStatistics, error) {
				since, step := in.times()
				sum, at, err := k.ChainSummary(ctx, in.Chain, since, step)
				return chainStatisticsView(&sum, at), err
			})
		})
	}
}

func statisticsView(s *statistics.Summary, at time.Time) ListStatistics {
	out := ListStatistics{
		AtMS: ms(at), StepMS: s.Step.Milliseconds(), ListCounts: countsView(&s.Total),
		Applications: make(map[string]ListCounts, len(s.Applications)), Points: make([]ListPoint, len(s.Points)),
	}
	for name, c := range s.Applications {
		out.Applications[name] = countsView(&c)
	}
	for i := range s.Points {
		p := &s.Points[i]
		hits, misses, unknown := p.Counts.Results()
		out.Points[i] = ListPoint{
			AtMS: ms(p.At), Lookups: hits + misses + unknown, Hits: hits, Misses: misses, Unknown: unknown,
		}
	}
	return out
}

func countsView(c *count.Counts) (out ListCounts) {
	out.Hits, out.Misses, out.Unknown = c.Results()
	out.Lookups = out.Hits + out.Misses + out.Unknown
	if answered := out.Hits + out.Misses; answered > 0 {
		out.HitRate = float64(out.Hits) / float64(answered)
	}
	out.FalsePositives, out.RemoteCalls = c[count.FalsePositives], c.Calls()
	if out.RemoteCalls > 0 {
		out.RemoteMeanUS = c[count.RemoteMicros] / out.RemoteCalls
	}
	out.Sources, out.UnknownBy, out.RemoteBy = map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for i, n := range c {
		name := count.Names[i]
		remote, isRemote := strings.CutPrefix(name, "remote_")
		switch reason, isUnknown := strings.CutPrefix(name, "unknown_"); {
		case n == 0 || i <= count.Unknown || i == count.FalsePositives || i == count.RemoteMicros:
		case isUnknown:
			out.UnknownBy[reason] = n
		case isRemote:
			out.RemoteBy[remote] = n
		default:
			out.Sources[name] = n
		}
	}
	return out
}
