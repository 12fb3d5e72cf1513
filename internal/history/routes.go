package history

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
)

// Figure is a value that may be unknown, which is null.
type Figure = *float64

// HistoryTable is the answer of GET /v1/history.
type HistoryTable struct {
	// StepMS and the rest are documented in their tags.
	StepMS  int64      `json:"step_ms" doc:"The time between two rows."`
	Columns []string   `json:"columns" doc:"The names of the columns."`
	Rows    [][]Figure `json:"rows" doc:"A row for each whole step, the oldest first; null where nothing is known."`
}

type (
	historyInput struct {
		Since string `query:"since" maxLength:"32" default:"15m" doc:"How far back, such as 15m or 3h; 24h at most, or 2160h (90 days) where the replica has console.prometheus_url."`
		Step  string `query:"step" enum:"2s,10s,1m," doc:"The time between two rows: 2s reaches back 15 minutes, 10s 3 hours, 1m 24 hours. Default: the finest that reaches since. Figures from Prometheus have steps of their own: 10m up to 168h, 1h up to 720h, else 3h."`
	}
	historyOutput struct{ Body HistoryTable }
)

// Routes registers GET /v1/history.
func (h *History) Routes(r *api.Router) {
	huma.Register(r, huma.Operation{
		OperationID: "get-history", Method: http.MethodGet, Path: "/v1/history", Tags: []string{"history"},
		Summary:     "Show the figures of the system over time",
		Description: describe(),
	}, func(ctx context.Context, in *historyInput) (*historyOutput, error) {
		table, err := h.read(ctx, in)
		if err != nil {
			return nil, r.Refuse("history", err)
		}
		return &historyOutput{Body: HistoryTable(table)}, nil
	})
}

// read returns what is asked for: from memory, or beyond 24 hours from Prometheus.
func (h *History) read(ctx context.Context, in *historyInput) (Table, error) {
	since, err := time.ParseDuration(in.Since)
	if err != nil || since <= coarseReach || h.long == nil {
		since, step, err := in.parse()
		if err != nil {
			return Table{}, err
		}
		return h.Range(since, step), nil
	}
	if since > LongReach {
		return Table{}, freeslot.Invalid("since", "is %q, expected a duration of up to 2160h", in.Since)
	}
	if in.Step != "" {
		return Table{}, freeslot.Invalid("step", "is %s, expected none with a since of more than 24h", in.Step)
	}
	now, ok := h.Now()
	if !ok {
		now = time.Now()
	}
	return h.long.Range(ctx, now, since)
}

func (in *historyInput) parse() (since time.Duration, step Step, err error) {
	since, err = time.ParseDuration(in.Since)
	if err != nil || since <= 0 {
		return 0, 0, freeslot.Invalid("since", "is %q, expected a duration of up to 24h, such as 15m", in.Since)
	}
	if since > coarseReach {
		return 0, 0, freeslot.Invalid(
			"since", "is %q, expected a duration of up to 24h: longer ones need console.prometheus_url", in.Since,
		)
	}
	if in.Step == "" {
		return since, Finest(since), nil
	}
	fixed, _ := time.ParseDuration(in.Step) // the schema lists the values
	if step = Step(fixed); Reach(step) < since {
		return 0, 0, freeslot.Invalid(
			"step", "%s reaches back %s, expected a since of at most that, or a longer step", in.Step, Reach(step),
		)
	}
	return since, step, nil
}

func describe() string {
	var text strings.Builder
	text.WriteString("The figures of all replicas together, as the replica that answers knows them. " +
		"A step without a report of a replica has no values. Rates and histograms are sums over the replicas; " +
		"percentiles are computed from the summed buckets of a step, and have no value in a step without an observation. " +
		"Of other values a step has the highest. Columns: " +
		"`t_ms`: when a step began, in milliseconds since 1970, by the store's clock.")
	for _, s := range all {
		fmt.Fprintf(&text, " `%s`: %s", s.name, s.help)
	}
	return text.String()
}
