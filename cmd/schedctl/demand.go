package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/demand"
)

type demandCmd struct {
	Pool string `placeholder:"POOL" help:"Only this pool."`
}

// Help is shown below the flags.
func (demandCmd) Help() string {
	return `A line for each pool, and below it one for each service with jobs of late. WANTED adds up the slots of the jobs that
wait or are due within a minute. USED and FREE of a service count the nodes that offer it. RUN is the mean run time.
Jobs and nodes without a pool come last, as "-". Pools with target_wait also show how many nodes are wanted.`
}

// Run shows the demand.
func (c *demandCmd) Run(a *app) error {
	var list demand.DemandList
	query := url.Values{}
	setNonEmpty(query, "pool", c.Pool)
	if err := a.call(http.MethodGet, "/v1/demand", query, nil, &list); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{{"POOL", "SERVICE", "NODES", "USED", "FREE", "WAITING", "DUE", "WANTED", "OLDEST", "JOBS/S", "RUN"}}
	for i := range list.Pools {
		p := &list.Pools[i]
		nodes := strconv.Itoa(p.Nodes)
		if p.NodesWanted != nil {
			nodes += fmt.Sprintf(" of %d wanted", *p.NodesWanted)
		}
		if p.Draining > 0 {
			nodes += fmt.Sprintf(", %d draining", p.Draining)
		}
		rows = append(rows, append([]string{dash(p.Pool), "", nodes}, demandCells(&p.Demand)...))
		for j := range p.Services {
			s := &p.Services[j]
			rows = append(rows, append([]string{"", dash(s.Service), ""}, demandCells(&s.Demand)...))
		}
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if list.Stale {
		a.warn("the replica does not know all nodes now; their figures are old")
	}
	a.warnCells(list.Unreachable)
	return nil
}

// warnCells names the cells whose jobs are missing.
func (a *app) warnCells(silent []int) {
	if len(silent) > 0 {
		a.warn("cells %s do not answer; their jobs are missing", strings.Trim(fmt.Sprint(silent), "[]"))
	}
}

func demandCells(d *demand.Demand) []string {
	waiting, oldest, run := strconv.Itoa(d.WaitingJobs), "-", "-"
	if d.PausedJobs > 0 {
		waiting += fmt.Sprintf(" (%d paused)", d.PausedJobs)
	}
	if d.OldestWaitMS > 0 {
		oldest = age(d.OldestWaitMS).String()
	}
	if d.RunMS != nil {
		run = (time.Duration(*d.RunMS*1000) * time.Microsecond).Round(time.Millisecond).String()
	}
	return []string{
		strconv.Itoa(d.UsedSlots), strconv.Itoa(d.FreeSlots), waiting, strconv.Itoa(d.DueJobs), strconv.Itoa(d.WantedSlots),
		oldest, strconv.FormatFloat(d.Arrivals, 'f', 2, 64), run,
	}
}
