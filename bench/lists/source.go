package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/internal/namelist/source"
)

const (
	sourceRows  = 1_000_000
	sourceLimit = 2 * time.Minute
)

// fed is a source with the replica that alone has it.
type fed struct {
	name, about string
	replica     *system.Scheduler
	idle        float64 // MiB

	rates, cpu []float64 // ids a second in each round, and us of the replica for an id
}

func runSource(ctx context.Context, b *tool.Bench, d *bed) {
	if !system.HasPostgres() {
		tool.Check(fmt.Errorf("%w: PostgreSQL is not installed: scripts/deps.sh postgres", tool.ErrLeftOut))
	}
	rows := tool.Sized(b, sourceRows, 20_000)
	b.Say("The same %s ids come from a file of the replica, and from a table of PostgreSQL with the id as its primary key, in "+
		"turns, each time to a list of its own, and each by a replica that has no other source. The time is from the beginning of "+
		"the run until its version is ready, by Redis' clock. Memory is VmRSS of the replica before, and VmHWM after all rounds.",
		thousands(rows))
	path := filepath.Join(b.Folder, "ids.txt")
	tool.Must(writeFile(path, rows, false))
	defer os.Remove(path) //nolint:errcheck // its folder goes, too
	postgres := tool.Must(system.StartPostgres(ctx, system.AOFOff))
	defer tool.End(postgres.Stop)
	fillTable(ctx, postgres.URL(), path)
	b.Result.Servers += ", " + postgres.Version(ctx)

	query := func(text string) string {
		return fmt.Sprintf("{kind: postgres, url: '%s', query: '%s'}", postgres.URL(), text)
	}
	feed := func(name, about, config string) *fed {
		r := d.replica(ctx, fmt.Sprintf("FREESLOT_LISTS__SOURCES={%s: %s}", name, config))
		return &fed{name: name, about: about, replica: r, idle: tool.Must(r.Resident())}
	}
	file := feed("lines", "a file", fmt.Sprintf("{kind: file, path: '%s', format: txt}", path))
	table := feed("rows", "SELECT id FROM ids", query("SELECT id FROM ids"))
	sorted := feed("sorted", "SELECT id FROM ids ORDER BY id", query("SELECT id FROM ids ORDER BY id"))
	all := []*fed{file, table, sorted}
	store := source.NewStore(d.lists, d.control.Client, zap.NewNop())
	tool.InTurns(
		b, d.rounds, all, func(f *fed, round int) { d.feed(ctx, store, f, f.name+"-"+strconv.Itoa(round+1), rows) },
	)

	t := result.NewTable(
		"Source", "ids [/s]", "of the file's speed [x]", "replica, CPU an id [us]", "replica idle [MiB]", "highest [MiB]",
	)
	slowest, highest := 1.0, 0.0
	for _, f := range all {
		ratio, peak := measure.Median(ratios(f.rates, file.rates)), tool.Must(f.replica.PeakResident())
		t.Add(f.about, measure.Median(f.rates), ratio, measure.Median(f.cpu), f.idle, peak)
		if f != file {
			slowest, highest = min(slowest, ratio), max(highest, peak)
		}
	}
	b.Result.Tables = []result.Table{t}
	what := thousands(rows) + " rows of PostgreSQL"
	b.Target(what+" to ready / the same ids from a file, the slower query", result.Times, result.AtLeast, 0.7, slowest)
	b.Target(what+": the replica's memory", result.MiB, result.AtMost, 256, highest)
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// fillTable makes a table of the lines of a file.
func fillTable(ctx context.Context, url, path string) {
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	conn := tool.Must(pgconn.Connect(ctx, url))
	defer func() { _ = conn.Close(ctx) }()
	run := func(statements string) {
		_, err := conn.Exec(ctx, statements).ReadAll()
		tool.Check(err)
	}
	run("CREATE TABLE ids (id text)")
	f := tool.Must(os.Open(path))
	defer f.Close()
	_, err := conn.CopyFrom(ctx, f, "COPY ids FROM STDIN")
	tool.Check(err)
	run("ALTER TABLE ids ADD PRIMARY KEY (id)")
	run("VACUUM ANALYZE ids")
}

// feed makes a list, and runs the source for it.
func (d *bed) feed(ctx context.Context, store *source.Store, f *fed, list string, rows int) {
	ctx, cancel := context.WithTimeout(ctx, sourceLimit)
	defer cancel()
	d.create(ctx, list, filter.Fuse)
	tool.Must(store.Set(ctx, list, source.Assignment{Source: f.name, Author: by.Author}))
	replica := tool.Must(system.NewMeter(ctx, nil, f.replica.PID()))
	a := tool.Must(store.Ask(ctx, list, "bench"))
	for ; len(a.Runs) == 0; a = tool.Must(store.Get(ctx, list)) {
		tool.Sleep(ctx, pollEvery)
	}
	spent := tool.Must(replica.Spent(ctx)).Processes
	run := a.Runs[0]
	if run.Result != source.Served || run.Rows != int64(rows) {
		tool.Check(fmt.Errorf("source %s: %s with %d rows: %s; want %d served", f.name, run.Result, run.Rows, run.Why, rows))
	}
	v := tool.Must(d.lists.Head(ctx, list)).Serving
	took := time.Duration(v.AtMS-run.AtMS) * time.Millisecond
	f.rates, f.cpu = append(f.rates, float64(rows)/took.Seconds()), append(f.cpu, 1e6*spent/float64(rows))
}
