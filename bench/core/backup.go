package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// manySchedules lets a tenant have as many schedules as the part makes.
const manySchedules = "FREESLOT_TENANT_DEFAULTS__MAX_SCHEDULES=2000"

// backedUp is how much a backup has.
type backedUp struct{ ids, schedules, instances int }

// runBackup measures a backup and its restore, and what a backup does to jobs meanwhile.
func runBackup(ctx context.Context, b *tool.Bench) {
	size := tool.Sized(b, backedUp{1_000_000, 10_000, 10_000}, backedUp{2_000, 50, 50})
	rounds, window := tool.Sized(b, 5, 1), tool.Sized(b, 7*time.Second, 500*time.Millisecond)
	const rate = 500
	b.Say("A list of %s ids in one version, %s schedules of ten tenants and %s persistent instances of one service. "+
		"`schedctl backup` to a file, not compressed, and `schedctl restore` into an empty Redis with a replica of its own: "+
		"medians of 3. Then jobs over WebSocket at %d/s in an open loop, a call each, to the replica with 4 nodes of 256 "+
		"slots: without a backup, while one backup follows the other through the same replica, and while they go through "+
		"another one, in turns, %d rounds, windows of %s; a ratio is the median of the ratios within the rounds.",
		measure.Thousands(size.ids), measure.Thousands(size.schedules), measure.Thousands(size.instances), rate, rounds, window)
	schedctl := b.Program(ctx, "schedctl")
	s := b.StartSystem(ctx, system.Shape{
		AOF: system.AOFOff, Schedulers: 1, Environment: []string{manySchedules, "FREESLOT_LISTS__DIR=" + filepath.Join(b.Folder, "lists")},
		Worker: "-nodes 4 -slots 256", Load: "-sessions 4",
	})
	defer tool.End(s.Stop)
	from := &backupBed{
		ctx: ctx, schedctl: schedctl, address: s.Schedulers[0].Address, file: filepath.Join(b.Folder, "backup"),
	}
	from.fill(b, size)

	var backups, restores []float64
	for range tool.Sized(b, 3, 1) {
		backups = append(backups, from.backup())
		restores = append(restores, from.restore(b))
	}
	t := result.NewTable("Backup", "seconds", "least", "most", "file [MB]")
	bytes := float64(tool.Must(os.Stat(from.file)).Size()) / 1e6
	t.Add("backup", measure.Median(backups), measure.Quantile(backups, 0), measure.Quantile(backups, 1), bytes)
	t.Add("restore", measure.Median(restores), measure.Quantile(restores, 0), measure.Quantile(restores, 1), bytes)

	other := tool.Must(system.StartScheduler(
		ctx, b.Program(ctx, "scheduler"), s.Redis.URL(), 2, manySchedules, "FREESLOT_LISTS__DIR="+filepath.Join(b.Folder, "other"),
	))
	defer tool.End(other.Stop)
	all := []*beside{{name: "nothing"}, {name: "backups", through: from.address}, {name: "backups through another replica", through: other.Address}}
	tool.InTurns(b, rounds, all, func(v *beside, _ int) {
		stop := func() int { return 0 }
		if v.through != "" {
			stop = from.backups(v.through)
		}
		figures := tool.Must(s.Ask(ctx, load.Request{Loop: load.Open, Rate: rate, WarmUpMS: 500, MeasureMS: window.Milliseconds()}))
		v.backups += stop()
		b.Failed += figures.Failures()
		v.p50, v.p99 = append(v.p50, float64(figures.Assign.P50)), append(v.p99, float64(figures.Assign.P99))
	})
	jobs := result.NewTable("Beside", "submit to assign, p50 [us]", "p99 [us]", "p99, least [us]", "p99, most [us]")
	for _, v := range all {
		jobs.Add(v.name, measure.Median(v.p50), measure.Median(v.p99), measure.Quantile(v.p99, 0), measure.Quantile(v.p99, 1))
	}
	b.Result.Tables = []result.Table{t, jobs}
	for i, what := range []string{"during a backup", "during a backup through another replica"} {
		v, ratios := all[i+1], make([]float64, len(all[0].p99))
		for k := range ratios {
			ratios[k] = v.p99[k] / all[0].p99[k]
		}
		b.Target("p99 time to assign "+what+", against none", result.Times, result.AtMost, 1.2, measure.Median(ratios))
		b.Note("%.2f to %.2f in single rounds; %d backups ended", measure.Quantile(ratios, 0), measure.Quantile(ratios, 1), v.backups)
	}
}

// beside holds the times to assign of each round in microseconds.
type beside struct {
	name     string
	through  string // the replica that backups ask; empty for none
	backups  int
	p50, p99 []float64
}

// backupBed is the system that is backed up.
type backupBed struct {
	ctx                     context.Context
	schedctl, address, file string
}

// run runs schedctl, and returns its time in seconds.
func (d *backupBed) run(address string, args ...string) float64 {
	begin := time.Now()
	cmd := exec.CommandContext(d.ctx, d.schedctl, append([]string{"--server", address}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tool.Check(fmt.Errorf("schedctl %v: %w\n%s", args, err, out))
	}
	return time.Since(begin).Seconds()
}

func (d *backupBed) backup() float64 { return d.run(d.address, "backup", d.file) }

// restore restores the file into a system of its own.
func (d *backupBed) restore(b *tool.Bench) float64 {
	redis := tool.Must(system.StartRedis(d.ctx, system.AOFOff))
	defer tool.End(redis.Stop)
	program := b.Program(d.ctx, "scheduler")
	folder := tool.Must(os.MkdirTemp(b.Folder, "restored"))
	r := tool.Must(system.StartScheduler(d.ctx, program, redis.URL(), 1, manySchedules, "FREESLOT_LISTS__DIR="+folder))
	defer tool.End(r.Stop)
	return d.run(r.Address, "restore", d.file)
}

// backups makes one backup after the other through a replica until stop, which returns how many
// have ended.
func (d *backupBed) backups(through string) (stop func() int) {
	ctx, cancel := context.WithCancel(d.ctx)
	ended, failed := 0, make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			out, err := exec.CommandContext(ctx, d.schedctl, "--server", through, "backup", d.file+"-beside").CombinedOutput()
			if err == nil {
				ended++
			} else if ctx.Err() == nil {
				failed <- fmt.Errorf("schedctl backup: %w\n%s", err, out)
				return
			}
		}
		failed <- nil
	}()
	return func() int {
		cancel()
		tool.Check(<-failed)
		return ended
	}
}

// fill makes what is backed up.
func (d *backupBed) fill(b *tool.Bench, size backedUp) {
	const callers = 8
	b.Progress("making %s schedules and %s instances", measure.Thousands(size.schedules), measure.Thousands(size.instances))
	tool.Together(callers, size.schedules, func(i int) {
		d.send(http.MethodPut, fmt.Sprintf("/v1/schedules/s-%d?tenant=t-%d", i, i%10), map[string]any{
			"cron": "30 4 1 1 *", "job": map[string]any{"service": benchService, "payload": map[string]any{"report": i}},
		})
	})
	tool.Together(callers, size.instances, func(i int) {
		d.send(http.MethodPost, "/admin/registry/services/db/instances", map[string]any{
			"host": fmt.Sprintf("10.0.%d.%d", i/250, i%250), "port": 5432, "metadata": map[string]string{"zone": "eu-1"},
		})
	})
	b.Progress("importing %s ids", measure.Thousands(size.ids))
	path := filepath.Join(b.Folder, "ids.txt")
	file := tool.Must(os.Create(path))
	out := bufio.NewWriter(file)
	for i := range size.ids {
		tool.Must(fmt.Fprintf(out, "user-%010d\n", i))
	}
	tool.Check(errors.Join(out.Flush(), file.Close()))
	d.run(d.address, "lists", "apply", "vip")
	d.run(d.address, "lists", "import", "vip", path, "--switch")
}

func (d *backupBed) send(method, path string, body any) {
	text := tool.Must(json.Marshal(body))
	req := tool.Must(http.NewRequestWithContext(d.ctx, method, "http://"+d.address+path, bytes.NewReader(text)))
	req.Header.Set("Content-Type", "application/json")
	resp := tool.Must(http.DefaultClient.Do(req))
	answer := tool.Must(io.ReadAll(resp.Body))
	tool.Check(resp.Body.Close())
	if resp.StatusCode >= http.StatusMultipleChoices {
		tool.Check(fmt.Errorf("%s %s: %s %s", method, path, resp.Status, answer))
	}
}
