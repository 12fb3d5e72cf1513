package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// idleRounds: memory differs little from round to round.
const idleRounds = 3

func runMemory(ctx context.Context, b *tool.Bench, _ tool.Length) {
	rounds, settle := tool.Sized(b, idleRounds, 1), tool.Sized(b, 10*time.Second, time.Second)
	p := programs(ctx, b, "python")
	python := p.Commands["python"][0]
	_, withMetrics := system.Python(ctx, "psutil")
	p.Commands["idle"] = []string{python, filepath.Join(filepath.Dir(p.Commands["python"][1]), "idle.py")}
	version := tool.Must(system.Output(ctx, b.Root, python, "--version"))
	b.Say("A worker such as in the SDK's README (%s), %s after its node is online, with nothing to do; beside it an "+
		"interpreter that waits for its input. Resident memory by /proc.", version, settle)
	var bare, idle, metrics []footprint
	for round := range rounds {
		bare = append(bare, interpreter(ctx, python, settle))
		idle = append(idle, idleWorker(ctx, p, settle, "-plain"))
		if withMetrics == nil {
			metrics = append(metrics, idleWorker(ctx, p, settle, ""))
		}
		b.Progress("round %d of %d", round+1, rounds)
	}
	t := result.NewTable("Process", "resident [MB]", "of that of no file [MB]")
	add := func(name string, all []footprint) float64 {
		var resident, anonymous []float64
		for _, f := range all {
			resident, anonymous = append(resident, f.resident), append(anonymous, f.anonymous)
		}
		t.Add(name, measure.Median(resident), measure.Median(anonymous))
		return measure.Median(resident)
	}
	bareMB, idleMB := add("interpreter", bare), add("idle worker", idle)
	if withMetrics == nil {
		add("idle worker with the extra metrics (psutil)", metrics)
	}
	b.Result.Tables = []result.Table{t}
	b.Target("an idle Python worker without extras, above a bare interpreter", result.MB, result.AtMost, 15, idleMB-bareMB)
}

// footprint is memory in megabytes.
type footprint struct{ resident, anonymous float64 }

func footprintOf(c *measure.Child) footprint {
	const mb = (1 << 20) / 1e6
	return footprint{tool.Must(c.Resident()) * mb, tool.Must(c.Anonymous()) * mb}
}

func interpreter(ctx context.Context, python string, settle time.Duration) footprint {
	cmd := exec.Command(python, "-c", "import sys; print('ready', flush=True); sys.stdin.read()")
	c := tool.Must(measure.StartChild(ctx, "interpreter", cmd))
	defer tool.End(c.End)
	tool.Sleep(ctx, settle)
	return footprintOf(c)
}

func idleWorker(ctx context.Context, p *system.Programs, settle time.Duration, flags string) footprint {
	s := tool.Must(system.Start(ctx, p, system.Shape{
		Program: "idle", LoadProgram: system.Freeslot, AOF: system.AOFOff, Schedulers: 1, Gateway: true, Worker: flags,
	}))
	defer tool.End(s.Stop)
	defer tool.End(s.Workers[0].Process.Stop) // it has no use for its input
	start, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	for look(start, s.Schedulers[0].Address, "idle").Status != "online" {
		tool.Sleep(start, statePoll)
	}
	tool.Sleep(ctx, settle)
	return footprintOf(s.Workers[0])
}
