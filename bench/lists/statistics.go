package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	reportersMode = "reporters"
	// reportEvery is how often a client reports; replicas add up every statisticsWindow.
	reportEvery      = 5 * time.Second
	statisticsWindow = 30 * time.Second
	reporters        = 1000
	reportedLists    = 20
)

// reporting is what a process reports for: so many clients, each on all Lists, whose births it has.
type reporting struct {
	URL     string
	Clients int
	Births  map[string]string
}

// reportRequest begins to report, with or without counts, or ends with Stop.
type reportRequest struct{ Counted, Stop bool }

// reported says how many reports a second were made, each on all lists.
type reported struct{ Rate float64 }

func runStatistics(ctx context.Context, b *tool.Bench, d *bed) {
	clients, named := tool.Sized(b, reporters, 50), tool.Sized(b, reportedLists, 3)
	window := tool.Sized(b, statisticsWindow, time.Second)
	b.Say("A process makes the calls in which %s clients with Redis report on %d lists each, every %s, without and with what "+
		"they have counted: %d windows of %s of each, in turns. Clients make these calls in any case. A replica adds up the "+
		"counts of a list every 30s. It reads reports without counts, too, so its cost is what it takes more than without any. "+
		"Figures are means: processor time of all replicas, and of the main thread of the control server.",
		thousands(clients), named, reportEvery, d.rounds, window)
	if len(d.replicas) == 0 {
		d.replica(ctx)
	}
	of := reporting{URL: d.control.URL(), Clients: clients, Births: make(map[string]string)}
	for i := range named {
		list := "counted-" + strconv.Itoa(i+1)
		d.create(ctx, list, filter.Fuse)
		step, cancel := context.WithTimeout(ctx, stepLimit)
		of.Births[list] = tool.Must(d.lists.Head(step, list)).Birth
		cancel()
	}
	b.Progress("without clients")
	idle := &reportCost{name: "no clients"}
	idle.measure(ctx, d, 2*window)
	c := tool.StartChild(ctx, "reporters", reportersMode, of)
	defer tool.End(c.End)
	plain, counted := &reportCost{name: "without counts"}, &reportCost{name: "with counts", counted: true}
	tool.InTurns(b, d.rounds, []*reportCost{plain, counted}, func(one *reportCost, _ int) {
		tool.Ask[reported](ctx, c, 0, reportRequest{Counted: one.counted})
		tool.Sleep(ctx, min(reportEvery, window)) // until all have reported in this way
		one.measure(ctx, d, window)
		rate, want := tool.Ask[reported](ctx, c, 0, reportRequest{Stop: true}).Rate, float64(clients)/reportEvery.Seconds()
		if rate < 0.9*want && !b.Short {
			tool.Check(fmt.Errorf("%.0f reports a second were made; want %.0f", rate, want))
		}
	})
	t := result.NewTable(
		fmt.Sprintf("%s clients x %d lists", thousands(clients), named), "replicas, of a core [%]", "Redis, of a core [%]",
	)
	for _, one := range []*reportCost{idle, plain, counted} {
		t.Add(one.name, one.replicas(), one.redis())
	}
	b.Result.Tables = []result.Table{t}
	b.Target(
		"statistics: replicas, of a core", result.Percent, result.AtMost, 2, max(counted.replicas()-idle.replicas(), 0),
	)
	b.Target("statistics: Redis, of a core", result.Percent, result.AtMost, 2, max(counted.redis()-plain.redis(), 0))
}

// reportCost is what some windows have cost.
type reportCost struct {
	name    string
	counted bool
	sum     system.Spent
}

func (c *reportCost) measure(ctx context.Context, d *bed, length time.Duration) {
	var replicas []int
	for _, r := range d.replicas {
		replicas = append(replicas, r.PID())
	}
	m := tool.Must(system.NewMeter(ctx, d.control, replicas...))
	tool.Sleep(ctx, length)
	spent := tool.Must(m.Spent(ctx))
	c.sum.Seconds += spent.Seconds
	c.sum.Redis += spent.Redis
	c.sum.Processes += spent.Processes
}

func (c *reportCost) replicas() float64 { return c.sum.OfCore(c.sum.Processes) }
func (c *reportCost) redis() float64    { return c.sum.OfCore(c.sum.Redis) }

// runReporters makes the calls of many clients.
func runReporters(_ context.Context, arg []byte, serve func(func([]byte) any)) {
	of := tool.Decode[reporting](arg)
	client := tool.Must(redisclient.Commands(redisclient.Config{URL: of.URL, Name: "bench-reporters"}))
	defer client.Close()
	control := lists.NewControl(client, keyPrefix, false, zap.NewNop(), nil)
	end, done := context.CancelFunc(nil), make(chan func() reported, 1)
	begun := time.Now() // the counts go on through all windows
	serve(func(text []byte) any {
		r := tool.Decode[reportRequest](text)
		if r.Stop {
			end()
			return (<-done)()
		}
		ctx, cancel := context.WithCancel(context.Background())
		end = cancel
		go func() {
			var made reported
			err := tool.Try(func() { made = report(ctx, control, &of, r.Counted, begun) })
			done <- func() reported { tool.Check(err); return made }
		}()
		return reported{}
	})
}

// report makes the reports in an open loop until ctx ends: of one client after the other.
func report(ctx context.Context, control *lists.Control, of *reporting, withCounts bool, begun time.Time) reported {
	made, from := 0, time.Now()
	each := reportEvery / time.Duration(of.Clients)
	for measure.SleepUntil(ctx, from.Add(time.Duration(made)*each)) == nil {
		i := made % of.Clients
		all := make(map[string]lists.ClientReport, len(of.Births))
		for list, birth := range of.Births {
			r := lists.ClientReport{Birth: birth, Revision: 1, Serves: 1, Loaded: []int64{1}, SDK: "go"}
			if withCounts {
				r.Counts = countsOf(i, time.Since(begun))
			}
			all[list] = r
		}
		call, cancel := context.WithTimeout(context.Background(), stepLimit)
		tool.Check(control.Report(call, clientOf(i), all))
		cancel()
		made++
	}
	return reported{float64(made) / time.Since(from).Seconds()}
}

func clientOf(i int) string { return "bench-" + strconv.Itoa(i) }

// countsOf is what a client reports that is asked 1,000 times a second.
func countsOf(i int, age time.Duration) string {
	n := uint64(age.Milliseconds())
	r := count.Report{Incarnation: clientOf(i), AgeMS: age.Milliseconds()}
	r.Counts[count.FilterNo], r.Counts[count.CacheYes], r.Counts[count.RedisYes] = n*9/10, n/20, n/25
	r.Counts[count.RedisNo], r.Counts[count.EditsYes], r.Counts[count.FalsePositives] = n/250, n/200, n/250
	r.Counts[count.RemoteMicros], r.Counts[count.RemoteTo1ms], r.Counts[count.RemoteTo5ms] = n*10, n/30, n/100
	return r.String()
}
