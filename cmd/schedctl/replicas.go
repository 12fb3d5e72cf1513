package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/history"
)

type replicasCmd struct {
	List replicasListCmd `cmd:"" name:"ls" help:"List the running replicas and the servers of Redis that each of them sees."`
}

type replicasListCmd struct{}

// Run lists the replicas.
func (replicasListCmd) Run(a *app) error {
	var list history.ReplicaStatuses
	if err := a.call(http.MethodGet, "/v1/replicas/status", nil, nil, &list); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{{"REPLICA", "BUILD", "UP", "READY", "CPU", "MEMORY", "JOBS/S", "CONFIG", "CELLS"}}
	redis := [][]string{{"REDIS", "SEEN BY", "CELLS", "ROLE", "LATENCY", "MEMORY", "OF"}}
	for _, r := range list.Replicas {
		rows = append(rows, []string{
			r.Name, dash(r.Build), ago(r.StartedMS), readyText(&r), figureText(r.CPU), bytesText(r.MemoryBytes),
			figureText(r.Arrivals), fmt.Sprint(r.ConfigVersion), fmt.Sprint(r.Cells),
		})
		for _, s := range r.Redis {
			role, latency := "not connected", "-"
			if s.Connected {
				role, latency = dash(s.Role), strconv.FormatFloat(s.LatencyMS, 'f', -1, 64)+"ms"
			}
			redis = append(redis, []string{
				dash(s.Address), r.Name, strings.Trim(fmt.Sprint(s.Cells), "[]"), role, latency, bytesText(s.UsedBytes),
				bytesText(s.MaxBytes),
			})
		}
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	_ = a.println("")
	if err := table(a.out, redis); err != nil {
		return err
	}
	for _, r := range list.Replicas {
		for _, f := range r.Failed {
			_ = a.println("%s, %s: %s", r.Name, f.Name, f.Detail)
		}
	}
	return nil
}

func readyText(r *history.ReplicaStatus) string {
	switch {
	case r.Build == "":
		return "-"
	case !r.Ready:
		return "no"
	case len(r.Failed) > 0:
		return "in part"
	default:
		return "yes"
	}
}

func figureText(v history.Figure) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

func bytesText(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fMB", float64(n)/1e6)
}
