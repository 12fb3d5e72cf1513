package server

import (
	"time"

	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/statistics"
)

type chainStatisticsInput struct {
	OfChain
	Window
}

// ChainStatistics is what clients and replicas have counted of the decisions of a chain.
type ChainStatistics struct {
	AtMS   int64 `json:"at_ms" doc:"Redis' time. The last minute is not complete: clients report each 5 s, and reports are added up each 30 s."`
	StepMS int64 `json:"step_ms"`
	ChainCounts
	Rules  map[string]ChainCounts `json:"rules" doc:"By the rule that decided; (default) for the default; other for all beyond 64, and where history has lost that detail."`
	Points []ChainPoint           `json:"points" doc:"The minutes or hours in which something was counted, the oldest first."`
}

// ChainCounts counts decisions.
type ChainCounts struct {
	Decisions uint64       `json:"decisions"`
	Allow     uint64       `json:"allow"`
	Deny      uint64       `json:"deny"`
	Variant   uint64       `json:"variant"`
	Unknown   uint64       `json:"unknown"`
	Shadow    ShadowCounts `json:"shadow"`
}

// ShadowCounts counts what shadows have decided beside.
type ShadowCounts struct {
	// The tags document Same and the rest for readers of the API.
	Same      uint64 `json:"same" doc:"The shadow had the same outcome and variant."`
	Different uint64 `json:"different"`
	Undecided uint64 `json:"undecided" doc:"Memory could not decide. A shadow asks no one else."`
}

// ChainPoint counts the decisions of a minute or an hour.
type ChainPoint struct {
	AtMS int64 `json:"at_ms" doc:"Its beginning."`
	ChainCounts
}

func chainStatisticsView(s *statistics.Summary, at time.Time) ChainStatistics {
	out := ChainStatistics{
		AtMS: ms(at), StepMS: s.Step.Milliseconds(), ChainCounts: chainCounts(&s.Total),
		Rules: make(map[string]ChainCounts, len(s.Applications)), Points: make([]ChainPoint, len(s.Points)),
	}
	for rule, c := range s.Applications {
		out.Rules[rule] = chainCounts(&c)
	}
	for i := range s.Points {
		out.Points[i] = ChainPoint{ms(s.Points[i].At), chainCounts(&s.Points[i].Counts)}
	}
	return out
}

func chainCounts(c *count.Counts) ChainCounts {
	return ChainCounts{
		Decisions: c[count.Allow] + c[count.Deny] + c[count.Variant] + c[count.Undecided],
		Allow:     c[count.Allow], Deny: c[count.Deny], Variant: c[count.Variant], Unknown: c[count.Undecided],
		Shadow: ShadowCounts{c[count.ShadowSame], c[count.ShadowDifferent], c[count.ShadowUndecided]},
	}
}
